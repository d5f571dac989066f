"""One trial: how it is started, watched, measured and ended."""
