"""The agent's own modules and classes freed at its end, without waiting for a collection of the job's.

In: the agent's modules, after the last of its threads has left them. Out: nothing stays that only they refer
to; what the job can still reach stays as it is. It does what a collection does, over our objects alone: the
job's own garbage, and when its finalizers run, are the job's.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType

MOST_OBJECTS = 60_000  # about 6,000 are reached
AT_ONCE, BREATH_S = 400, 0.0002  # after so many objects the training thread gets the GIL
# The interval of the GIL from the counts on, which take some 20 ms: nobody may take up what is about to go.
# The job's threads wait as long for each other meanwhile.
ALONE_S = 0.05
_TP_CLEAR = 51  # of typeslots.h, the stable ABI
# Whose objects may hold ours: containers, methods, descriptors, aliases of types.
# fmt: off
_HOMES = frozenset((
    "builtins", "dataclasses", "typing", "types", "enum", "abc", "_abc", "functools", "weakref",
    "collections", "contextlib", "ctypes", "_ctypes",
))
# fmt: on
_LEAVES = frozenset((ModuleType, BuiltinFunctionType))
_home_of: Callable[[type], object] = vars(type)["__module__"].__get__  # run no code of a metaclass
_name_of: Callable[[type], object] = vars(type)["__qualname__"].__get__
Pause = Callable[[float], object]


def free(roots: list[object], package: str, pause: Pause = time.sleep) -> int | None:
    """Free what only the roots refer to; how many objects were, None where they were too many.

    Args:
        roots: Modules, and what else leads to objects of ours. It is emptied; the caller has no other
            reference to them any more.
        package: The name that our modules' names begin with.
        pause: Lets the training thread go on.
    """
    # A dataclass with slots is made twice, and nothing but its base knows the first.
    roots += [kind for kind in type.__subclasses__(object) if _top(_home_of(kind)) == package]
    ours = _reached(roots, package, pause)
    interval_s = sys.getswitchinterval()
    guard = _in_children(functools.partial(sys.setswitchinterval, interval_s))
    sys.setswitchinterval(ALONE_S)
    try:
        pause(BREATH_S)  # who waits for the GIL already does so by the old interval: it gets its turn
        return None if ours is None else _cleared(_unreachable(ours, roots))
    finally:
        ours = None
        del guard
        roots.clear()
        sys.setswitchinterval(interval_s)


def _in_children(restore: Callable[[], object]) -> object:
    """Called in each child forked while the result lives: as `fork_guard` does, without a class of ours."""
    held = functools.partial(restore)
    held._at_fork_reinit = restore  # type: ignore[attr-defined]
    guards = getattr(logging, "_at_fork_reinit_lock_weakset", None)
    if guards is not None:
        guards.add(held)
    return held


def _cleared(garbage: list[object]) -> int:
    slot = ctypes.pythonapi["PyType_GetSlot"]  # an object of its own: the job may have one by that name
    slot.restype, slot.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    calls: dict[type, Callable[[object], object] | None] = {}
    found = len(garbage)
    garbage.append(slot)  # a function of a library refers to itself
    for each in garbage:
        kind = type(each)
        if kind not in calls:
            address = slot(kind, _TP_CLEAR)
            calls[kind] = type(slot)(address) if address else None
            if address:
                calls[kind].argtypes = (ctypes.py_object,)  # type: ignore[union-attr]
        clear = calls[kind]
        if clear is not None:
            clear(each)
    return found


def _reached(roots: Sequence[object], package: str, pause: Pause) -> list[object] | None:
    """All that the roots lead to, no further than to what is somebody else's; None if that is too much."""
    known = {
        id(object.__getattribute__(module, "__dict__"))
        for module in list(sys.modules.values())
        if issubclass(type(module), ModuleType)
    }
    known.update(map(id, roots))
    reached = list(roots)
    looked = 0
    while looked < len(reached):
        part = reached[looked : looked + AT_ONCE]
        looked += len(part)
        for each in gc.get_referents(*part):
            if id(each) not in known:
                known.add(id(each))
                if _may_be_ours(each, package):
                    reached.append(each)
        if len(reached) > MOST_OBJECTS:
            return None
        pause(BREATH_S)
    return reached


def _may_be_ours(thing: object, package: str) -> bool:
    kind = type(thing)
    if kind is FunctionType:  # somebody's may be a wrapper around one of ours
        function: FunctionType = thing  # type: ignore[assignment]
        return _top(function.__module__) == package or function.__closure__ is not None
    if kind in _LEAVES or not (gc.is_tracked(thing) or kind in (dict, tuple)):
        return False
    if issubclass(kind, type):  # `ctypes` makes one for each library
        return _top(_home_of(thing)) == package or "<locals>" in str(_name_of(thing))  # type: ignore[arg-type]
    home = _top(_home_of(kind))
    return home == package or home in _HOMES


def _top(home: object) -> str:
    return home.partition(".")[0] if isinstance(home, str) else ""


def _unreachable(ours: list[object], roots: Sequence[object]) -> list[object]:
    """Those that have no reference but from each other and the roots, by their counts."""
    inner: defaultdict[int, int] = defaultdict(int)
    for each in roots:
        inner[id(each)] += 1
    for at in range(0, len(ours), AT_ONCE):
        for each in gc.get_referents(*ours[at : at + AT_ONCE]):
            inner[id(each)] += 1
    each = None
    ours.append(object())  # the list alone refers to it
    counts = list(map(sys.getrefcount, ours))
    ours.pop()
    least = counts.pop()
    place = {id(each): at for at, each in enumerate(ours)}
    alive = [at for at, each in enumerate(ours) if counts[at] - least > inner[id(each)]]
    seen = set(alive)
    while alive:
        for each in gc.get_referents(ours[alive.pop()]):
            found = place.get(id(each))
            if found is not None and found not in seen:
                seen.add(found)
                alive.append(found)
    return [each for at, each in enumerate(ours) if at not in seen]
