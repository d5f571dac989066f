"""Remedies of the whole process: threads, allocator, garbage collector, ranks."""
