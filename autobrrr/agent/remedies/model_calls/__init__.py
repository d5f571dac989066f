"""Layers around the calls of a module."""
