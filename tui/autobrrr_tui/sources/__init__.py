"""Where a view comes from: a running session, its ranks, a log, a recording."""
