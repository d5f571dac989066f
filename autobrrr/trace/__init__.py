"""Kineto traces explained: reading, gaps and their causes, kernel classes, steps, verdict, advice."""
