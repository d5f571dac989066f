"""Functions of torch's in whose place the job, or a library, has put one of its own.

torch's layers call them by their names. Beneath a function mode torch's own function looks itself up by its
name as well, and hands over what stands there: what is wrapped around it runs once more.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import FunctionType, ModuleType

from .installed_code import home_of, is_own, is_standard


def replaced_functions(torch: ModuleType) -> Iterator[tuple[str, object]]:
    """Each by its name, with what stands there."""
    for owner in (torch.Tensor, torch.functional, torch.nn.functional, torch.autograd):
        for name, found in vars(owner).items():
            if callable(found) and not isinstance(found, type) and not _is_torchs(found):
                yield f"{owner.__name__}.{name}", found


def _is_torchs(thing: object) -> bool:
    """By where it was written: what is wrapped around a function takes over its names. Ours count too."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    home = str(thing.__globals__.get("__name__")) if isinstance(thing, FunctionType) else home_of(type(thing))
    return home.partition(".")[0] == "torch" or is_own(home) or is_standard(home)
