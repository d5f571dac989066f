"""The tuner on a thread of its own, and the job as it sees it."""
