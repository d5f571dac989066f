"""Where the busiest host thread spends its time: inside operators, compiled code, or between them.

In: the host columns of one trace. Out: shares of the time from its first to its last event, and
each operator's own time. On a CPU, operators are where kernels work: what lies between them is
Python, autograd's bookkeeping and the dispatcher's callers. What dispatch costs inside an operator
can't be told from its kernel here, so the share inside is an upper bound of kernel work.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from msgspec import Struct

from autobrrr.trace.reading.trace_columns import ANNOTATION, OPERATOR, Flags, HostColumns, Trace

COMPILED = "## Call CompiledFxGraph"
LOADER = "enumerate(DataLoader)"
_FRAMES = ("autograd::", "torch::autograd::")  # around operators, no kernels of their own
Row = tuple[int, int, str]


class OperatorTime(Struct, frozen=True, kw_only=True):
    """One operator on the thread, over the whole trace."""

    name: str
    count: int
    self_ns: int  # without the operators called inside it


class HostTime(Struct, frozen=True, kw_only=True):
    """The busiest thread's time; the shares are of `span_ns`, and compiled code counts as inside."""

    span_ns: int
    inside_share: float
    compiled_share: float
    loader_share: float
    calls: int  # operators that no other operator called
    operators: list[OperatorTime]  # longest own time first


def host_time(trace: Trace) -> HostTime | None:
    """The time of the thread that spends most in operators; None where there are none."""
    host = trace.host
    chosen = _busiest(host)
    if chosen is None:
        return None
    own = host.thread == chosen
    wanted = own & ((host.kind == OPERATOR) | (host.kind == ANNOTATION))
    order = np.lexsort((-host.end[wanted], host.start[wanted]))
    rows: list[Row] = [
        (start, end, trace.names[name])
        for start, end, name in zip(
            host.start[wanted][order].tolist(),
            host.end[wanted][order].tolist(),
            host.name[wanted][order].tolist(),
            strict=True,
        )
    ]
    span_ns = max(end for _, end, _ in rows) - rows[0][0]
    if span_ns <= 0:
        return None
    outermost = _outermost([row for row in rows if is_work(row[2])])
    return HostTime(
        span_ns=span_ns,
        inside_share=_total_ns(outermost) / span_ns,
        compiled_share=_total_ns(_outermost([row for row in rows if row[2].startswith(COMPILED)])) / span_ns,
        loader_share=_total_ns(_outermost([row for row in rows if row[2].startswith(LOADER)])) / span_ns,
        calls=len(outermost),
        operators=_own_times(rows),
    )


def is_work(name: str) -> bool:
    """Whether an event is an operator or a compiled graph, not a frame around some."""
    return name.startswith(COMPILED) or ("::" in name and not name.startswith(_FRAMES))


def _busiest(host: HostColumns) -> int | None:
    operators: Flags = host.kind == OPERATOR
    if not operators.any():
        return None
    spent = np.bincount(
        host.thread[operators], weights=(host.end[operators] - host.start[operators]).astype(np.float64)
    )
    return int(spent.argmax())


def _outermost(rows: list[Row]) -> list[Row]:
    """Of rows in order of their start, those that lie in no other."""
    found: list[Row] = []
    until = -1
    for row in rows:
        if row[0] >= until:
            found.append(row)
            until = row[1]
    return found


def _total_ns(rows: list[Row]) -> int:
    return sum(end - start for start, end, _ in rows)


def _own_times(rows: list[Row]) -> list[OperatorTime]:
    count: dict[str, int] = defaultdict(int)
    own_ns: dict[str, int] = defaultdict(int)
    open_rows: list[Row] = []
    for start, end, name in rows:
        while open_rows and open_rows[-1][1] <= start:
            open_rows.pop()
        label = COMPILED.removeprefix("## Call ") if name.startswith(COMPILED) else name
        if open_rows:
            around = open_rows[-1][2]
            own_ns[around] -= min(end, open_rows[-1][1]) - start
        count[label] += 1
        own_ns[label] += end - start
        open_rows.append((start, end, label))
    found = [
        OperatorTime(name=name, count=count[name], self_ns=max(0, own_ns[name]))
        for name in count
        if is_work(name) or name == COMPILED.removeprefix("## Call ")
    ]
    return sorted(found, key=lambda each: each.self_ns, reverse=True)
