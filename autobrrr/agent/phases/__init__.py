"""Where a sampled step's time goes: hooks, clocks, the loader."""
