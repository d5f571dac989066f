"""Traces made to break the reader, and what it must make of them."""
