"""Operator replay: one real step is recorded, and its operators run again on made-up tensors elsewhere."""
