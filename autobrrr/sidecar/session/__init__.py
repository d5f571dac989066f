"""What one session knows and does: states, measurements, the ring, the log."""
