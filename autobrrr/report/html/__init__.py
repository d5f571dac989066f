"""Pages: no network, no library, light and dark."""
