"""A study from its first trial to its last: search, ablation, confirmation."""
