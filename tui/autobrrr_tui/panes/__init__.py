"""What each mode shows: pure functions from a view and a size to rows."""
