"""The training loop, on the training thread: which step it is, and what may run between two steps."""
