"""What only a GPU can say: `python -m benchmarks.gpu --help`."""
