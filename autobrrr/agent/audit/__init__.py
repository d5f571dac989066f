"""What a run really does, counted from inside it: samples, calls, operations, and digests of its numbers."""
