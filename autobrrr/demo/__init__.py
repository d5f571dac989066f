"""The demonstration's training script; it knows nothing of autobrrr."""
