"""The tables of planted cases: those of the host, of kernels, of a GPU, and all that a CPU runs."""
