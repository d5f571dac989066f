"""All families of remedies, imported for their entries in the table. Add a new family here."""

# ruff: noqa: F401

from __future__ import annotations

from .compile import compile_models
from .loader import batch_size, loader_workers
from .model import attention, channels_last, precision, recompute
from .optimizer import optimizer_kernels
from .process import ddp_arguments, gc_remedies, host_environment, thread_counts
from .registry import REGISTRY

__all__ = ["REGISTRY"]
