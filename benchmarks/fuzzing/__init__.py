"""Inputs made to break the parsers, and what each parser must make of them."""
