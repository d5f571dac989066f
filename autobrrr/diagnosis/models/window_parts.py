"""Where the step of a compiled job goes, by its profiler window: neither traced steps nor forward show it.

Kernels are what runs inside operators and compiled graphs, less `DISPATCH_NS` for each call: of an operator,
of a product inside a graph, and of as many kernels as inductor has made. The host has what lies between them,
less all that the profiler adds. Both are the least; what may be dispatch inside operators is neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements, once
from autobrrr.diagnosis.models.sampled_frames import feed_standing, in_own_code, standing_at_least
from autobrrr.diagnosis.models.traced_kernels import is_compute
from autobrrr.diagnosis.robust_stats import median, positive, share_of
from autobrrr.records import ProfilerWindow

PRODUCTS, GRAPHS, OPERATORS = "matrix products", "other kernels of compiled graphs", "other operators"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowParts:
    """Shares of the step, 0-1; what waits for a DataLoader is none of them."""

    kernels: Mapping[str, float]  # at least, by what they are
    short: float  # inside operators and graphs, what may be dispatch
    host: float  # between them, at least
    calls: float  # dispatch of what the step itself calls, at most
    fed: float  # between them, in a generator of the script's own that the loop reads from
    own: float | None  # of the host, the user's code between the phases, at least; None: no stack was sampled


@once
def window_parts(measured: Measurements) -> WindowParts | None:
    """None where forward is timed, on a device, beside ranks to wait for, and without a window."""
    window, phases, facts = measured.profile, measured.phases, measured.facts
    if window is None or window.status != "ok" or window.gaps:
        return None
    if facts is not None and (facts.has_other_ranks or facts.is_asynchronous):
        return None
    if window.inside_share is None or window.operators is None or phases is None:
        return None
    plain_ns, step_ns = positive(median(window.plain_step_ns)), positive(median(window.profiled_step_ns))
    if plain_ns is None or step_ns is None or phases.mean.forward is not None:
        return None
    loading = window.loader_share or 0.0
    between = max(0.0, 1 - window.inside_share - loading)
    least = max(0.0, between - max(0.0, 1 - plain_ns / step_ns))
    fed = min(least, feed_standing(measured))
    # Standing between the phases may be in operators, and time without any may be dispatch: not both at once.
    standing = standing_at_least(measured, in_own_code)
    calls = window.operators * thresholds.DISPATCH_NS / step_ns
    own = None if standing is None else max(0.0, between - calls + standing - 1)
    # Waits come in bursts: all the rest is a part of what plain steps leave.
    waits = share_of(phases.mean.data_wait, phases.step_ns)
    left = 1.0 if waits is None else (1 - waits) / max(1e-9, 1 - loading)
    kernels = {what: left * ns / step_ns for what, ns in _kernels_ns(window, step_ns).items()}
    return WindowParts(
        kernels=kernels,
        short=max(0.0, left * window.inside_share - sum(kernels.values())),
        host=left * (least - fed),
        calls=left * calls,
        fed=left * fed,
        own=None if own is None else left * own,
    )


def _kernels_ns(window: ProfilerWindow, step_ns: float) -> dict[str, float]:
    products = [one for one in window.by_op if is_compute(one.op)]
    graphs = [one for one in window.by_op if one.op.startswith("CompiledFxGraph")]
    # Each graph may have all kernels that were made; where their number isn't known all may be calls.
    calls_of_graphs = (window.graph_kernels or math.inf) * max((one.count for one in graphs), default=0.0)
    spent_ns, graphs_ns = sum(one.self_ns for one in products), sum(one.self_ns for one in graphs)
    rest_ns = (window.inside_share or 0.0) * step_ns - spent_ns - graphs_ns
    found = {
        PRODUCTS: spent_ns - thresholds.DISPATCH_NS * sum(one.count for one in products),
        GRAPHS: graphs_ns - thresholds.DISPATCH_NS * calls_of_graphs if graphs else 0.0,
        OPERATORS: rest_ns - thresholds.DISPATCH_NS * (window.operators or 0.0),
    }
    return {what: max(0.0, ns) for what, ns in found.items()}
