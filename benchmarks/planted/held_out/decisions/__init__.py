"""Environments, games and recommendations."""
