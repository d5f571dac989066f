"""Whose code it is: installed, the interpreter's or ours, or the user's own."""

from __future__ import annotations

import functools
import sys

_OWN = __name__.partition(".")[0]


@functools.lru_cache(maxsize=4096)
def is_library(module_name: str) -> bool:
    """Whether a module is installed (or ours, or the interpreter's) rather than the user's own code."""
    top = module_name.partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return True
    if top == _OWN:
        return True
    source = getattr(sys.modules.get(module_name) or sys.modules.get(top), "__file__", None) or ""
    return "site-packages" in source or "dist-packages" in source
