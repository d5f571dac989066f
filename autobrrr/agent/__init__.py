"""What runs inside the training process: the standard library and the target's own torch only."""
