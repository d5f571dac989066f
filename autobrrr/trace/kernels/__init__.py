"""What kernels do: their class, their work, the peaks of the device."""
