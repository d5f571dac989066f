"""What is shipped into the target, and what loads it there."""
