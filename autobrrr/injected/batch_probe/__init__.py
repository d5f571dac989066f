"""The shadow-step batch probe: record one real step, replay it at other batch sizes."""
