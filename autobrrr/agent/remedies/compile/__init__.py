"""Remedies that compile or graph the model."""
