"""Functions of torch's in whose place the job, or a library, has put one of its own.

torch's layers call them by their names. Beneath a function mode torch's own function looks itself up by its
name as well, and hands over what stands there: what is wrapped around it runs once more.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CellType, FunctionType, MethodType, ModuleType

from .installed_code import home_of, is_own, is_standard


def replaced_functions(torch: ModuleType) -> Iterator[tuple[str, object]]:
    """Each by its name, with what stands there."""
    for owner in (torch.Tensor, torch.functional, torch.nn.functional, torch.autograd):
        for name, found in list(vars(owner).items()):  # other threads may add some
            if callable(found) and not isinstance(found, type) and not _is_torchs(found):
                yield f"{owner.__name__}.{name}", found


def _is_torchs(thing: object) -> bool:
    """By where all was written that it runs: what is wrapped around a function takes over its names.

    A decorator of torch's or of the standard library runs what it holds, a bound method what it is of.
    """
    coming, seen = [thing], set()
    while coming:
        each = coming.pop()
        if not callable(each) or isinstance(each, type) or id(each) in seen:
            continue
        seen.add(id(each))
        home = home_of(type(each))
        if isinstance(each, FunctionType):
            home = str(each.__globals__.get("__name__"))
        if home.partition(".")[0] != "torch" and not is_own(home) and not is_standard(home):
            return False
        coming += _held(each)
    return True


def _held(thing: object) -> list[object]:
    """What it may call."""
    if isinstance(thing, functools.partial):
        return [thing.func]
    if isinstance(thing, MethodType):
        return [thing.__func__]
    cells = (thing.__closure__ or ()) if isinstance(thing, FunctionType) else ()
    kept = getattr(thing, "__dict__", None)
    return [*map(content, cells), *(list(kept.values()) if isinstance(kept, dict) else ())]


def content(cell: CellType) -> object:
    """What a function closes over; None where that is not set yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
