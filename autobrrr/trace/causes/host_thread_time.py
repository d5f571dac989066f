"""Where the busiest host thread spends its time: inside operators, compiled code, or between them.

In: the host columns of one trace. Out: shares of the time from its first to its last event, and
each operator's own time. On a CPU, operators are where kernels work: what lies between them is
Python, autograd's bookkeeping and the dispatcher's callers. What dispatch costs inside an operator
can't be told from its kernel here, so the share inside is an upper bound of kernel work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from autobrrr.records import WindowOp
from autobrrr.trace.reading.trace_columns import ANNOTATION, OPERATOR, Flags, Trace
from autobrrr.trace.timeline.intervals import union
from autobrrr.trace.timeline.thread_timeline import Nesting, nest

COMPILED = "## Call CompiledFxGraph"
LOADER = "enumerate(DataLoader)"
_FRAMES = ("autograd::", "torch::autograd::")  # around operators, no kernels of their own


class HostTime(Struct, frozen=True, kw_only=True):
    """The busiest thread's time; shares are of its span, and compiled code counts as inside."""

    inside_share: float  # without what runs in the loader
    compiled_share: float
    loader_share: float
    calls: int  # operators that no other operator called
    operators: list[WindowOp]  # over the whole trace, longest own time first


def host_time(trace: Trace) -> HostTime | None:
    """The time of the thread that spends most in operators; None where there are none."""
    host = trace.host
    operators: Flags = host.kind == OPERATOR
    if not operators.any():
        return None
    length = (host.end - host.start).astype(np.float64)
    chosen = int(np.bincount(host.thread[operators], weights=length[operators]).argmax())
    rows = np.flatnonzero((host.thread == chosen) & (operators | (host.kind == ANNOTATION)))
    nesting = nest(rows, host.start[rows], host.end[rows])
    if len(nesting) == 0:
        return None
    names = [trace.names[name] for name in host.name[nesting.row].tolist()]
    span_ns = int(nesting.end.max() - nesting.start[0])
    work = np.array([is_work(name) for name in names])
    inside = nesting.inherited(work.astype(np.int8)) > 0
    called = inside[nesting.parent] & (nesting.parent >= 0)

    def share(holds: Callable[[str], bool]) -> float:
        flags = np.array([holds(name) for name in names])
        return union(nesting.start[flags], nesting.end[flags]).length_ns() / span_ns

    loading = share(lambda name: name.startswith(LOADER))
    return HostTime(
        inside_share=share(lambda name: is_work(name) or name.startswith(LOADER)) - loading,
        compiled_share=share(lambda name: name.startswith(COMPILED)),
        loader_share=loading,
        calls=int((work & ~called).sum()),
        operators=_own_times(nesting, names),
    )


def is_work(name: str) -> bool:
    """Whether an event is an operator or a compiled graph, not a frame around some."""
    return name.startswith(COMPILED) or ("::" in name and not name.startswith(_FRAMES))


def _own_times(nesting: Nesting, names: list[str]) -> list[WindowOp]:
    own = nesting.owners().held_ns(len(nesting))
    count, own_ns = Counter[str](), Counter[str]()
    for name, ns in zip(names, own.tolist(), strict=True):
        if is_work(name):
            label = COMPILED.removeprefix("## Call ") if name.startswith(COMPILED) else name
            count[label] += 1
            own_ns[label] += ns
    return [WindowOp(op=name, count=count[name], self_ns=ns) for name, ns in own_ns.most_common()]
