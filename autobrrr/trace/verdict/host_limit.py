"""Who limits the step where only the host was recorded: a job on CPUs, or a profile without its device.

In come the main thread's timeline and the steps, out go a limit and what to do. Inside operators a CPU
computes and dispatches; the two can't be told apart here, so kernels are never named with high confidence.
"""

from __future__ import annotations

import numpy as np

from autobrrr.quantities import share as percent
from autobrrr.records import Limit
from autobrrr.trace.causes.host_causes import ALLOCATION, DATA_LOADER, OP_DISPATCH, OPTIMIZER, SYNCHRONISATION
from autobrrr.trace.causes.idle_causes import HostTimeline
from autobrrr.trace.reading.trace_columns import OPERATOR, Trace
from autobrrr.trace.timeline.trace_steps import StepMark
from autobrrr.trace.trace_records import TraceAdvice
from autobrrr.trace.verdict.trace_limit import FIRM_AT, TraceLimit, named_part

_OPERATORS = (OP_DISPATCH, OPTIMIZER, ALLOCATION, SYNCHRONISATION)
_WORDS = {"input": "in the data loader", "kernels": "in operators", "host": "between operators"}


def host_limit(
    trace: Trace, timeline: HostTimeline, marks: list[StepMark], *, on_device: bool
) -> tuple[TraceLimit, list[TraceAdvice]] | None:
    """Who limits the main thread; None where it can't be told.

    Args:
        on_device: The job launches work for a device: only waits for data can be told then.
    """
    host = trace.host
    operators = host.thread[host.kind == OPERATOR]
    if len(operators) == 0:
        return None
    main = timeline.main_thread(int(np.bincount(operators).argmax()))
    lasting = [mark for mark in marks if not mark.early]
    own = host.thread == main
    start = min((mark.start for mark in lasting), default=int(host.start[own].min()))
    end = max((mark.end for mark in lasting), default=int(host.end[own].max()))
    span = max(end - start, 1)
    loader = timeline.busy_ns([main], start, end, (DATA_LOADER,))
    inside = timeline.busy_ns([main], start, end, _OPERATORS)
    shares = {"input": loader / span, "kernels": inside / span, "host": 1 - (loader + inside) / span}
    limit: Limit = named_part(shares) or "mixed"
    if on_device and limit != "input":
        return None
    listed = sorted(((share, name) for name, share in shares.items() if share >= 0.05), reverse=True)
    said = ", ".join(f"{percent(share)} {_WORDS[name]}" for share, name in listed)
    found = TraceLimit(
        limit=limit,
        confidence="high" if limit == "input" and shares["input"] >= FIRM_AT and not on_device else "low",
        reason=f"the main thread spends {said}",
    )
    return found, [_loader_advice(loader, span)] if limit == "input" else []


def _loader_advice(loader_ns: int, span_ns: int) -> TraceAdvice:
    return TraceAdvice(
        kind="data_loader",
        text="Training waits for the DataLoader: more workers, persistent_workers=True, prefetch_factor.",
        saves_ns=loader_ns,
        gain=round(span_ns / max(span_ns - loader_ns, 1), 3),
    )
