"""Texts and sequences."""
