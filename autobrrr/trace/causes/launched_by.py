"""Who on the host launched each GPU operation: the innermost operator, its shapes, the Python line.

Read off the launching thread at the moment of the launch call; External ids are not needed, which
older traces number differently.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from autobrrr.trace.causes.idle_causes import NOT_FOUND, HostTimeline
from autobrrr.trace.reading.nanoseconds import Nanoseconds
from autobrrr.trace.reading.trace_columns import OPERATOR, PYTHON, Trace
from autobrrr.trace.timeline.launches import NO_LAUNCH, Rows

_NOT_USERS = re.compile(
    r"^<|^nn\.Module|site-packages/|dist-packages/|^torch/|^triton/|^transformers/|lib/python3|^threading\.py"
    r"|^contextlib\.py|^importlib|^runpy\.py|^selectors\.py|^functools\.py|^typing\.py|^asyncio/"
)
_LINE = re.compile(r"^(.+\.py)\((\d+)\): (.+)$")


class LaunchedBy(Struct, frozen=True, kw_only=True):
    """Rows of HostColumns, or `NOT_FOUND`; shape [operations] each."""

    operator: Rows
    shaped: Rows  # the innermost operator whose shapes were recorded


def launched_by(trace: Trace, timeline: HostTimeline, call: Rows) -> LaunchedBy:
    """The operators around each launch call.

    Args:
        call: Rows of HostColumns, or `NO_LAUNCH`; shape [operations].
    """
    host, known = trace.host, np.flatnonzero(call != NO_LAUNCH)
    threads, times = host.thread[call[known]], host.start[call[known]]
    operator, shaped = (np.full(len(call), NOT_FOUND, np.int64) for _ in range(2))
    operator[known] = timeline.around(threads, times, host.kind == OPERATOR)
    shaped[known] = timeline.around(threads, times, host.shape >= 0)
    return LaunchedBy(operator=operator, shaped=shaped)


def python_lines(
    trace: Trace, timeline: HostTimeline, threads: NDArray[np.integer], times: Nanoseconds
) -> list[str | None]:
    """The user's own Python around each moment on its thread: "train.py:31 step"; None without stacks.

    Falls back to the innermost Python function where none looks like the user's.
    """
    host = trace.host
    python = host.kind == PYTHON
    named = timeline.around(threads, times, python & trace.named(host.name, _LINE.match))
    users = timeline.around(threads, times, python & trace.named(host.name, is_users_own))
    rows = np.where(users == NOT_FOUND, named, users).tolist()
    return [short_place(trace.names[host.name[row]]) if row != NOT_FOUND else None for row in rows]


def is_users_own(name: str) -> bool:
    """Whether a Python function's name, as the profiler writes it, lies in a file of the user's."""
    return _LINE.match(name) is not None and _NOT_USERS.search(name) is None


def short_place(name: str) -> str:
    """ "train.py:31 step" for what the profiler writes."""
    found = _LINE.match(name)
    if found is None:
        return name
    path, line, function = found.groups()
    return f"{'/'.join(path.split('/')[-2:])}:{line} {function}"
