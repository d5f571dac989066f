"""What torch's profiler and its recorder tell standard error when they start and stop, left out around ours.

In: torch. Out: a context. These log levels have no other door than the variables themselves; where a torch
has no such symbol its lines stay.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple


class LogLevel(NamedTuple):
    """An int that is read at every line, and a value above all that is told: what fails is raised as well."""

    symbol: str
    nothing: int
    libraries: tuple[str, ...]


PROFILER = LogLevel("_ZN9libkineto6Logger14severityLevel_E", 1 << 20, ("libtorch_cpu.so", "libtorch.so"))
RECORDER = LogLevel("FLAGS_caffe2_log_level", 3, ("libc10.so",))


@contextlib.contextmanager
def quiet(torch: ModuleType, kind: LogLevel) -> Iterator[None]:
    """Nothing is told meanwhile. What is set within, by torch's first use of it or the job, stays."""
    level = level_of(torch, kind)
    if level is None:
        yield
        return
    before, level.value = level.value, kind.nothing
    try:
        yield
    finally:
        if level.value == kind.nothing:
            level.value = before


def level_of(torch: ModuleType, kind: LogLevel) -> ctypes.c_int | None:
    """The level; None where this torch has no such symbol."""
    for name in kind.libraries:
        with contextlib.suppress(ValueError):
            if (library := loaded(torch, name)) is not None:
                return ctypes.c_int.in_dll(library, kind.symbol)
    return None


@functools.cache
def loaded(torch: ModuleType, name: str) -> ctypes.CDLL | None:
    """A handle of a library of torch's that is already loaded. Cached, because each CDLL creates a class."""
    try:
        file = os.path.join(os.path.dirname(str(torch.__file__)), "lib", name)
        return ctypes.CDLL(file, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
