"""Who on the host launched each GPU operation: the innermost operator, its shapes, the Python line.

Read off the launching thread at the moment of the launch call; External ids are not needed, which
older traces number differently.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from autobrrr.trace.causes.idle_causes import HostTimeline
from autobrrr.trace.reading.trace_columns import OPERATOR, PYTHON, Trace, used
from autobrrr.trace.timeline.launches import NO_LAUNCH, Rows

NOT_FOUND = -1
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
    operator = np.full(len(call), NOT_FOUND, np.int64)
    shaped = np.full(len(call), NOT_FOUND, np.int64)
    known = np.flatnonzero(call != NO_LAUNCH)
    host = trace.host
    threads = host.thread[call[known]]
    for thread in used(threads):
        rows = known[threads == thread]
        nesting, line = timeline.nesting(thread), timeline.owners(thread)
        owner = line.at(host.start[call[rows]])
        for target, wanted in (
            (operator, host.kind[nesting.row] == OPERATOR),
            (shaped, host.shape[nesting.row] >= 0),
        ):
            target[rows] = _nearest(nesting.inherited(np.where(wanted, nesting.row + 1, 0)), owner)
    return LaunchedBy(operator=operator, shaped=shaped)


def python_line(trace: Trace, timeline: HostTimeline, row: int) -> str | None:
    """The user's own Python around a host event: "train.py:31 step"; None without stacks.

    Falls back to the innermost Python function where none looks like the user's.
    """
    return python_at(trace, timeline, int(trace.host.thread[row]), int(trace.host.start[row]))


def python_at(trace: Trace, timeline: HostTimeline, thread: int, time: int) -> str | None:
    """The user's own Python on a thread at one time."""
    nesting = timeline.nesting(thread)
    owner = int(timeline.owners(thread).at(np.array([time], np.int64))[0])
    innermost = None
    while owner >= 0:
        each = int(nesting.row[owner])
        if trace.host.kind[each] == PYTHON:
            name = trace.names[trace.host.name[each]]
            if is_users_own(name):
                return short_place(name)
            innermost = innermost or (short_place(name) if _LINE.match(name) else None)
        owner = int(nesting.parent[owner])
    return innermost


def _nearest(marks: Rows, owner: Rows) -> Rows:
    if len(marks) == 0:
        return np.full(len(owner), NOT_FOUND, np.int64)
    return np.where(owner >= 0, marks[np.maximum(owner, 0)] - 1, NOT_FOUND)


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
