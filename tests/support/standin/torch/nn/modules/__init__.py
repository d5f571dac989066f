"""Where torch keeps its modules."""

from . import module

__all__ = ["module"]
