"""Remedies of the DataLoader."""
