"""Ways into a running training process. Imports nothing: each rung is loaded when it is tried."""
