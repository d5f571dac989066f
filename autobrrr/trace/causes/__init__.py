"""Why the device was idle, and what the host did meanwhile."""
