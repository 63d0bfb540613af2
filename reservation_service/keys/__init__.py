"""Keys: a small file beside the database, and what of it is in force."""
