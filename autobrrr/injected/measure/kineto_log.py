"""What torch's profiler tells standard error when it starts and stops, left out around our windows.

In: torch. Out: a context. Kineto's log level has no other door than the variable itself; where a torch has no
such symbol its lines stay.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from types import ModuleType

LEVEL = "_ZN9libkineto6Logger14severityLevel_E"  # an atomic int, read at every line
LIBRARIES = ("libtorch_cpu.so", "libtorch.so")
NOTHING = 1 << 20  # above all of its levels, errors included: what fails is raised as well


@contextlib.contextmanager
def quiet(torch: ModuleType) -> Iterator[None]:
    """Nothing is told meanwhile. What is set within, by torch's first use of it or the job, stays."""
    level = _level(torch)
    if level is None:
        yield
        return
    before, level.value = level.value, NOTHING
    try:
        yield
    finally:
        if level.value == NOTHING:
            level.value = before


def _level(torch: ModuleType) -> ctypes.c_int | None:
    folder = os.path.join(os.path.dirname(str(torch.__file__)), "lib")
    for name in LIBRARIES:
        with contextlib.suppress(OSError, ValueError):
            return ctypes.c_int.in_dll(_loaded(os.path.join(folder, name)), LEVEL)
    return None


@functools.cache
def _loaded(file: str) -> ctypes.CDLL:
    """A library that the process has loaded already; made once: each one is a class of its own."""
    return ctypes.CDLL(file, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
