"""What this machine could do, from first principles: micro-benchmarks, peaks, the ridge between them."""
