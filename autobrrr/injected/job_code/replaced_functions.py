"""Functions of torch's in whose place the job, or a library, has put one of its own.

torch's layers call them by their names. Beneath a function mode torch's own function looks itself up by its
name as well, and hands over what stands there: what is wrapped around it runs once more.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

from .bytecode_names import codes
from .held_objects import content_of
from .installed_code import home_of, is_own, is_standard


def replaced_functions(torch: ModuleType) -> Iterator[tuple[str, object]]:
    """Each by its name, with what stands there. What is only added is none: nothing of torch's calls it."""
    modules = torch.functional, torch.nn.functional, torch.autograd
    places: list[tuple[Any, str, tuple[type, ...]]] = [(each, each.__name__, ()) for each in modules]
    places.append((torch.Tensor, "torch._tensor", torch.Tensor.__mro__[1:]))
    places.append((torch, "", (torch._C._VariableFunctionsClass,)))  # which is written in C
    for owner, home, above in places:
        called = (names_in(home) or vars(owner)) if home else ()
        for name, found in list(vars(owner).items()):  # other threads may add some
            is_called = name in called or any(name in vars(kind) for kind in above)
            if is_called and callable(found) and not isinstance(found, type) and not _is_torchs(found):
                yield f"{owner.__name__}.{name}", found


@functools.cache
def names_in(module: str) -> frozenset[str]:
    """All names in the code of an installed module; none where it can't be read."""
    try:
        code = sys.modules[module].__spec__.loader.get_code(module)  # type: ignore[union-attr]
    except (AttributeError, KeyError, ImportError, OSError):
        return frozenset()
    return frozenset(name for each in codes(code) for name in each.co_names) if code else frozenset()


def _is_torchs(thing: object) -> bool:
    """By where all was written that it runs: what is wrapped around a function takes over its names.

    A decorator of torch's or of the standard library runs what it holds, a bound method what it is of, and
    what is ours what it stands for.
    """
    coming, seen = [thing], set[int]()
    while coming:
        each = coming.pop()
        if not callable(each) or isinstance(each, type) or id(each) in seen:
            continue
        seen.add(id(each))
        home = home_of(type(each))
        if isinstance(each, FunctionType):
            home = str(each.__globals__.get("__name__"))
        if isinstance(each, MethodType) and isinstance(each.__self__, type):
            home = home_of(each.__self__)  # `apply` of a function of autograd
        if is_own(home):
            coming.append(getattr(each, "__wrapped__", None))
        elif home.partition(".")[0] == "torch" or is_standard(home):
            coming += _held(each)
        else:
            return False
    return True


def _held(thing: object) -> list[object]:
    """What it may call."""
    if isinstance(thing, functools.partial):
        return [thing.func]
    if isinstance(thing, MethodType):
        return [thing.__func__]
    cells = (thing.__closure__ or ()) if isinstance(thing, FunctionType) else ()
    kept = getattr(thing, "__dict__", None)
    return [*map(content_of, cells), *(list(kept.values()) if isinstance(kept, dict) else ())]
