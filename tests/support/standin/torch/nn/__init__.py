"""The least of a module: it is called, and it has parameters and children."""

from . import modules
from .modules.module import Module

__all__ = ["Module", "modules"]
