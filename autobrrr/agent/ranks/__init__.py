"""All ranks of one job: they agree at which step something changes, and none waits for another."""
