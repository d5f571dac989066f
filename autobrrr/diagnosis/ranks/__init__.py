"""The ranks of one job beside each other: which one the others wait for, and why."""
