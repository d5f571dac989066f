"""Text for a terminal or a pipe."""
