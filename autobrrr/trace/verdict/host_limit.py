"""Who limits the step where only the host was recorded: a job on CPUs, or a profile without its device.

In come the main thread's timeline and the steps, out go a limit and what to do. Inside operators a CPU
computes and dispatches: short ones name nobody, long ones kernels, but never with high confidence.
"""

from __future__ import annotations

import numpy as np

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.part_names import WHO, listed, no_single
from autobrrr.records import Confidence, Limit
from autobrrr.trace.causes.host_causes import ALLOCATION, DATA_LOADER, OP_DISPATCH, OPTIMIZER, SYNCHRONISATION
from autobrrr.trace.causes.idle_causes import HostTimeline
from autobrrr.trace.reading.trace_columns import OPERATOR, Trace
from autobrrr.trace.timeline.trace_steps import StepMark
from autobrrr.trace.trace_records import TraceAdvice
from autobrrr.trace.verdict.trace_advice import Saving
from autobrrr.trace.verdict.trace_verdict import leading_limit

_OPERATORS = (OP_DISPATCH, OPTIMIZER, ALLOCATION, SYNCHRONISATION)
_WORDS = {**WHO, "kernels": "operators", "host": "Python between operators"}
Found = tuple[Limit, Confidence, str, list[TraceAdvice]]


def host_limit(
    trace: Trace, timeline: HostTimeline, marks: list[StepMark], *, on_device: bool
) -> Found | None:
    """Who limits the main thread, how sure, why, and what to do; None where it can't be told.

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
    calls = int((own & (host.kind == OPERATOR) & (host.start >= start) & (host.end <= end)).sum())
    inner = "kernels" if inside >= calls * thresholds.DISPATCH_NS / thresholds.EXCLUDED_AT else "short"
    shares = {"input": loader / span, inner: inside / span, "host": 1 - (loader + inside) / span}
    limit: Limit = leading_limit(shares) or "mixed"
    if on_device and limit != "input":
        return None
    sure = limit == "input" and shares["input"] >= thresholds.LIMIT_FIRM_AT and not on_device
    said = no_single(shares) if limit == "mixed" else listed((shares[name], _WORDS[name]) for name in shares)
    waits = Saving("data_loader", loader, {"who": "Training", "pinned": ""})
    return limit, "high" if sure else "low", said, [waits.advice(span)] * (limit == "input")
