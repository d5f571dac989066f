"""Remedies of the optimizer."""
