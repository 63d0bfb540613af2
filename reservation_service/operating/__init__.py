"""What operators ask a running service, and do with its file."""
