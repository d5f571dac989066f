"""Ten kinds of training jobs that are told step by step what to do."""
