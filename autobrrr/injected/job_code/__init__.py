"""The job's own code, read and not run: its names, what they lead to, what running it again would do."""
