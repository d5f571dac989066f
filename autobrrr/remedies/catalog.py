"""All families of remedies, imported for their entries in the table. Add a new family here."""

from __future__ import annotations

from . import garbage, optimizer_foreach, optimizer_fused, threads
from .registry import REGISTRY

FAMILIES = (optimizer_fused, optimizer_foreach, threads, garbage)

__all__ = ["FAMILIES", "REGISTRY"]
