"""One file a signal: what it says alone, what it excludes. `signal_table` lists them."""
