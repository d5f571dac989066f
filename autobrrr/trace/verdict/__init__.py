"""From figures to a regime, warnings and advice."""
