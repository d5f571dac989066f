"""Builders: one record in, one page of the model out."""
