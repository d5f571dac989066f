"""Whose code it is: installed, the interpreter's or ours, or the user's own."""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import sys
from types import ModuleType
from typing import cast

_OWN = __name__.partition(".")[0]
_HEAP_TYPE = 1 << 9  # made as the program runs: the interpreter's own are there from the start
_MEMBERS = vars(ModuleType)["__dict__"]  # past what a class answers


@functools.lru_cache(maxsize=4096)
def is_library(module_name: str) -> bool:
    """Whether a module is installed (or ours, or the interpreter's) rather than the user's own code."""
    if is_standard(module_name):
        return True
    if is_own(module_name):
        return True
    source = _file(module_name) or ""
    return "site-packages" in source or "dist-packages" in source


def is_own(module_name: str) -> bool:
    """Whether a module is ours."""
    return module_name.partition(".")[0] == _OWN


def is_standard(module_name: str) -> bool:
    """Whether a module is of the standard library."""
    top = module_name.partition(".")[0]
    return top in sys.stdlib_module_names and top != "__main__"


def home_of(kind: type) -> str:
    """The module that a class comes from; empty where it has none, or only says that it is the interpreter's.

    Classes made in C may keep a descriptor under its name, for the module of each of their objects.
    """
    name: object = kind.__module__
    if not isinstance(name, str) or (name == "builtins" and kind.__flags__ & _HEAP_TYPE):
        return ""
    return name


def members_of(module: ModuleType) -> dict[str, object]:
    """Those that are there: some modules are loaded as they are asked for one."""
    return cast("dict[str, object]", _MEMBERS.__get__(module))


def _file(module_name: str) -> str | None:
    """The file of a module; of the package that it is in where it has none (`torch._C._nn`)."""
    name, top = module_name, module_name.partition(".")[0]
    while name:
        module = sys.modules.get(name)
        file = members_of(module).get("__file__") if isinstance(module, ModuleType) else None
        if file:
            return str(file)
        name = name.rpartition(".")[0]
    if not top or top in sys.modules:
        return None
    with contextlib.suppress(ImportError, ValueError, OSError):  # not imported yet
        spec = importlib.machinery.PathFinder.find_spec(top)
        return (
            None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)
        )
    return None
