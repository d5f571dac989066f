"""One script a family of jobs: `python -m benchmarks.planted.jobs.NAME --knob value`."""
