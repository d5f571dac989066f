"""All families of remedies, imported for their entries in the table. Add a new family here."""

from __future__ import annotations

from . import (
    attention,
    batch_size,
    compile,
    ddp_arguments,
    garbage,
    graphed_calls,
    host_affinity,
    host_environment,
    host_malloc,
    layout,
    loader_cache,
    loader_workers,
    optimizer_foreach,
    optimizer_fused,
    precision,
    precision_fp16,
    recompute,
    threads,
)
from .registry import REGISTRY

FAMILIES = (
    optimizer_fused,
    optimizer_foreach,
    threads,
    garbage,
    host_malloc,
    host_affinity,
    host_environment,
    loader_workers,
    loader_cache,
    batch_size,
    ddp_arguments,
    compile,
    graphed_calls,
    layout,
    attention,
    precision,
    precision_fp16,
    recompute,
)

__all__ = ["FAMILIES", "REGISTRY"]
