"""Planted bottlenecks: small training jobs whose regime is known because it was built in.

The ruler that the verdict is measured with. `python -m benchmarks.planted --help`.
"""
