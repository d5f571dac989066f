"""One session in a process at a time, whoever brought it.

Whoever attaches looks for a session in folders that come from their environment: with another
`XDG_RUNTIME_DIR`, or from another container, they may find none. Two agents would take off each other's
hooks in the wrong order and leave some for good. In: the boot record. Out: a claim, until the context ends.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

KEY = "autobrrr session"
PATIENCE_S, LOOK_S = 3.0, 0.01  # an agent that has closed its link is still leaving


class Occupied(Exception):
    """Another agent has a session here; its text is the folder of that session's socket, or nothing."""


@contextmanager
def claimed(boot: dict[str, object], patience_s: float = PATIENCE_S) -> Iterator[None]:
    """No other agent begins a session meanwhile. Raises `Occupied`."""
    held = _interpreters_own(boot)
    mine = (os.getpid(), boot.get("token"), boot.get("socket_folder") or "")
    end_s = time.monotonic() + patience_s
    while (theirs := held.setdefault(KEY, mine)) is not mine:
        if theirs[0] != mine[0]:  # this process was forked with it: that agent is not here
            held.pop(KEY, None)
        elif time.monotonic() > end_s:
            raise Occupied(*theirs[2:])
        else:
            time.sleep(LOOK_S)
    try:
        yield
    finally:
        if held.get(KEY) is mine:
            del held[KEY]


def _interpreters_own(boot: dict[str, object]) -> dict[str, tuple[object, ...]]:
    """The dictionary that Python keeps for extensions: the job's code does not see it, all agents find it.

    Its address is read, not the object: a function that gives one is taken to give a reference of our own,
    and this one lends it.
    """
    current = ctypes.pythonapi["PyInterpreterState_Get"]
    dictionary = ctypes.pythonapi["PyInterpreterState_GetDict"]
    boot["asked"] = current, dictionary  # they refer to themselves: with all of ours they go
    current.argtypes, current.restype = (), ctypes.c_void_p
    dictionary.argtypes, dictionary.restype = (ctypes.c_void_p,), ctypes.c_void_p
    found: dict[str, tuple[object, ...]] = ctypes.cast(dictionary(current()), ctypes.py_object).value
    return found
