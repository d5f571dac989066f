"""The agent that comes with a process which `run` starts."""
