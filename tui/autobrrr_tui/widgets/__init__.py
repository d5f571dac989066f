"""The one widget that draws rows."""
