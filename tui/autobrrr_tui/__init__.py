"""The terminal UI: a client of sessions like any other."""
