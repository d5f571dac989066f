"""The remedies. Each is one function that applies itself to a job and returns its own undo."""
