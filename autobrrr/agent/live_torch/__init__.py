"""What the agent reads and patches of the job's torch: modules, calls, modes, memory."""
