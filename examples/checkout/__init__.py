"""A checkout in front of the reservation service: a page, and the small server that it needs."""
