"""What the command line and the terminal UI know of sessions."""
