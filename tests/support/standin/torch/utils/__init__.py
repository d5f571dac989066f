"""Only the data loader."""

from . import data

__all__ = ["data"]
