"""Images, signals, graphs and grids."""
