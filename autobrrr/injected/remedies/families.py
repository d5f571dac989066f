"""All families of remedies, imported for their entries in the table. Add a new family here."""

from __future__ import annotations

from .compile import compile_models, graphed_calls
from .loader import batch_size, loader_cache, loader_workers
from .model import (
    attention,
    channels_last,
    precision,
    precision_fp16,
    recompute,
)
from .optimizer import optimizer_foreach, optimizer_fused
from .process import (
    ddp_arguments,
    gc_remedies,
    host_affinity,
    host_environment,
    host_malloc,
    thread_counts,
)
from .registry import REGISTRY

FAMILIES = (
    optimizer_fused,
    optimizer_foreach,
    thread_counts,
    gc_remedies,
    host_malloc,
    host_affinity,
    host_environment,
    loader_workers,
    loader_cache,
    batch_size,
    ddp_arguments,
    compile_models,
    graphed_calls,
    channels_last,
    attention,
    precision,
    precision_fp16,
    recompute,
)

__all__ = ["FAMILIES", "REGISTRY"]
