"""The referee: whether a change makes a script faster, and whether it still does the same work."""
