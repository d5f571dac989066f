"""Lookups by index in code that is compiled for a CPU: torch's own operators, not inductor's.

What inductor writes for them checks each index on many threads at once, where an error ends the process.
torch's own raise it in the caller, as they do without compiled code, and the job may catch it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

LOOKUPS = (("embedding", "default"), ("gather", "default"), ("index", "Tensor"))
# Only names kernels: code that other processes have put into torch's cache on disk has other names.
NOT_OF_OTHERS = ("torch._inductor.config", "cpp.descriptive_names", "inductor_node")


@contextmanager
def own_lookups(torch: ModuleType) -> Iterator[None]:
    """A context for calls that may compile."""
    place = import_module("torch._inductor.lowering")
    operators = [getattr(getattr(torch.ops.aten, name), overload) for name, overload in LOOKUPS]
    kept = {each: place.lowerings[each] for each in operators if each in place.lowerings}
    try:
        for each in kept:
            place.lowerings[each] = place.fallback_handler(each, add_to_fallback_set=False)
        yield
    finally:
        place.lowerings.update(kept)
