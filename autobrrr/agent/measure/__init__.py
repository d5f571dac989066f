"""Measurements of some steps: traced operators, profiler windows, stacks, collectives."""
