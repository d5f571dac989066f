"""Remedies of the model: layout, precision, attention, recomputation."""
