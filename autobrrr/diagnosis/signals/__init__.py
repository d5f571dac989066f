"""What each signal says alone, what it excludes. `signal_table` lists them."""
