"""What signals, verdict and advice share: kernel work, roofs, shares, fits."""
