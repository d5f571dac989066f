"""One device worked out, its figures, and several ranks compared."""
