"""What objects of the job's hold, read without asking code of theirs."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from types import CellType, MemberDescriptorType

from .installed_code import home_of

EMPTY = object()  # a variable around a function, or a slot, that has no value yet
ASKING = (operator.attrgetter, operator.itemgetter, operator.methodcaller)  # the collector finds what for
# What runs modules, and is not run by them, leads to all of the job: kept no deeper than its attributes.
_RUNNING = (
    "accelerate.", "deepspeed.", "lightning.", "lightning_fabric.", "pytorch_lightning.", "torch._dynamo.",
    "torch._inductor.", "torch._ops.", "torch.distributed.", "torch.fx.", "torch.jit.", "torch.optim.",
    "torch.utils.data.",
)  # fmt: skip


def attributes_of(value: object) -> dict[object, object] | None:
    """What is set on an object; its class, whose code may do anything, is not asked."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def slots_of(value: object) -> Iterator[tuple[MemberDescriptorType, object]]:
    """What an object keeps beside its attributes, where it is set."""
    for kind in type(value).__mro__:
        for slot in map(vars(kind).get, own_slots(kind)):
            if isinstance(slot, MemberDescriptorType):
                yield slot, in_slot(value, slot)


def in_slot(value: object, slot: MemberDescriptorType) -> object:
    """What stands there; `EMPTY` where nothing does."""
    try:
        return slot.__get__(value)
    except AttributeError:
        return EMPTY


def own_slots(kind: type) -> tuple[str, ...]:
    """Those that a class adds to its parents'."""
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    mangled = kind.__name__.lstrip("_")
    return tuple(
        f"_{mangled}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    )


def content_of(cell: CellType) -> object:
    """What a variable around a function is; `EMPTY` where it has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def runs_modules(kind: type) -> bool:
    """Whether objects of a class run modules, rather than modules them: they lead to the whole job."""
    return f"{home_of(kind)}.".startswith(_RUNNING)
