"""What each signal of a trace says alone; `TIMELINE` in the table of agreement holds the pairs.

Signals of one pair are read off different things: the device's timeline, the host's, names and
grids, shapes, the peers' clocks. Two readings of one timeline are no pair.
"""

from __future__ import annotations

from collections.abc import Mapping

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.models.leading import leads
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.quantities import duration
from autobrrr.quantities import share as percent
from autobrrr.records import Regime
from autobrrr.trace.device.steady_part import Steady
from autobrrr.trace.device.time_parts import OTHER
from autobrrr.trace.trace_records import DeviceAnalysis, DeviceSignals, Straggler

OF_SPAN, OF_PEAK = "share of the span", "share of peak"


def read_signals(
    figures: DeviceAnalysis, steady: Steady, shares: Mapping[str, float], peers: Straggler | None
) -> list[Reading]:
    """All signals of one device."""
    seen = figures.signals
    return [
        _time_split(shares, figures),
        _run_ahead(seen),
        _host_busy(seen),
        _host_in_loader(seen),
        _awaited_copy(steady),
        _blocked_calls(seen),
        _host_code(figures, steady),
        _arithmetic(seen),
        _bandwidth(seen),
        _kernel_length(seen),
        _peers(figures, peers),
    ]


def is_sure(figures: DeviceAnalysis) -> bool:
    """Whether the timeline itself can be relied on."""
    return figures.idle_clock_corrected is None and figures.kernel_count >= thresholds.FEW_KERNELS


def _time_split(shares: Mapping[str, float], figures: DeviceAnalysis) -> Reading:
    (first, share), (second, rival) = sorted(shares.items(), key=lambda item: -item[1])[:2]
    named: list[Regime] = [name for name in shares if name != OTHER]  # type: ignore[misc]
    return Reading(
        signal="time_split",
        says=next((name for name in named if name == first and leads(first, share, rival)), None),
        value=share,
        unit="share of the device's time",
        note=f"{first} {percent(share)}, then {second} {percent(rival)}",
        against=tuple(name for name in named if shares[name] < thresholds.TIMELINE_EXCLUDED_AT),
        firm=share >= thresholds.NAMED_AT + 0.1 and is_sure(figures),
    )


def _run_ahead(seen: DeviceSignals) -> Reading:
    share, delay = seen.queue_empty_share, seen.queue_delay_median_ns
    if share is None or delay is None:
        return abstention("run_ahead", "share of kernels", "no launch calls to compare with")
    note = f"{percent(share)} of kernels began within 10 us of their launch; median {duration(delay)}"
    return _reading(
        "run_ahead", share, "share of kernels", note,
        says="overhead" if share >= thresholds.QUEUE_EMPTY_AT else None,
        against=("overhead",) if share <= thresholds.QUEUED_AT and delay >= thresholds.QUEUE_NS else (),
    )  # fmt: skip


def _host_busy(seen: DeviceSignals) -> Reading:
    share = seen.host_busy_share
    if share is None:
        return abstention("host_busy", OF_SPAN, "no host operators in the trace")
    return _reading(
        "host_busy", share, OF_SPAN,
        f"launching threads {percent(share)} of the span in operators, launches, Python",
        says="overhead" if share >= thresholds.HOST_BUSY_AT else None,
        against=("overhead",) if share <= thresholds.HOST_FREE_AT else (),
    )  # fmt: skip


def _host_in_loader(seen: DeviceSignals) -> Reading:
    share = seen.loader_share
    if share is None:
        return abstention("host_in_loader", OF_SPAN, "no host operators in the trace")
    return _reading(
        "host_in_loader", share, OF_SPAN,
        f"main thread {_of_span(share)} of the span inside a data loader" if share else
        "no data loader was seen",
        says="input" if share >= thresholds.NAMED_AT else None,
        against=("input",) if share <= thresholds.NEVER_AT else (),
    )  # fmt: skip


def _awaited_copy(steady: Steady) -> Reading:
    share = steady.loader_idle_ended_by_copy
    if share is None:
        return abstention("awaited_copy", "share of loader idle", "no idle time while loading")
    return _reading(
        "awaited_copy", share, "share of loader idle",
        f"{percent(share)} of the idle time while loading ends with an input copy",
        says="input" if share >= thresholds.NAMED_AT else None,
    )  # fmt: skip


def _blocked_calls(seen: DeviceSignals) -> Reading:
    share = seen.sync_blocked_share or 0.0
    return _reading(
        "blocked_calls", share, OF_SPAN,
        f"launching threads {percent(share)} of the span inside synchronising calls" if share else
        "no synchronising calls",
        says="sync" if share >= thresholds.BLOCKED_AT else None,
        against=("sync",) if share <= thresholds.NEVER_AT else (),
    )  # fmt: skip


def _host_code(figures: DeviceAnalysis, steady: Steady) -> Reading:
    """Long stretches of Python count where they come back, and a frame names the user's code."""
    largest, places = steady.long_python_largest, figures.host_code
    if largest is None:
        why = "no stretch of Python of 1 ms or more while the device idles"
        return abstention("host_code", "gaps", why)
    where = f"; most in {places[0].python}" if places else "; no Python stacks to name it"
    gaps = steady.long_python_gaps
    recurring = gaps >= thresholds.RECURS_FROM and largest <= thresholds.LARGEST_OF_RECURRING
    return _reading(
        "host_code", gaps, "gaps",
        f"{gaps} gaps with Python of 1 ms or more, the largest {percent(largest)} of them{where}",
        says="host" if recurring and places else None,
    )  # fmt: skip


def _arithmetic(seen: DeviceSignals) -> Reading:
    value = seen.contraction_utilisation
    counted = seen.counted_flops_share or 0.0
    if value is None or counted < thresholds.EXPLAINED_AT:
        return abstention("arithmetic", OF_PEAK, _uncounted(seen))
    note = f"contractions at {percent(value)} of the spec-sheet peak, over {percent(counted)} of their time"
    return _roof("arithmetic", value, note, "compute")


def _uncounted(seen: DeviceSignals) -> str:
    """Why contractions can't be held against the roof."""
    if not seen.shapes_recorded:
        return "shapes were not recorded"
    if not seen.peak_known:
        return "the peak of this GPU is not known"
    counted = seen.counted_flops_share
    if counted is None:
        return "the work of its contractions can't be counted from the shapes that were recorded"
    return f"work could be counted for {percent(counted)} of contraction time only"


def _bandwidth(seen: DeviceSignals) -> Reading:
    value = seen.bandwidth_utilisation
    if value is None:
        return abstention("bandwidth", OF_PEAK, "no streaming kernel with a known grid")
    if value > thresholds.FROM_CACHE_AT:
        why = "more than memory can move: it came from the cache"
        return abstention("bandwidth", OF_PEAK, why, round(value, 4))
    note = f"streaming kernels at {percent(value)} of memory's peak, bytes from grid and types"
    return _roof("bandwidth", value, note, "memory")


def _roof(signal: str, value: float, note: str, full: Regime) -> Reading:
    """Near a roof the device is full, far below it hollow; in between the roof tells nothing."""
    near, far = value >= thresholds.FULL_AT, value < thresholds.ROOF_LOW
    return _reading(
        signal, value, OF_PEAK, note,
        says=full if near else "underfilled" if far else None,
        against=(full,) if far else ("underfilled",) if near else (),
    )  # fmt: skip


def _kernel_length(seen: DeviceSignals) -> Reading:
    ns = seen.median_kernel_ns
    if ns is None:
        return abstention("kernel_length", "ns", "no kernels")
    says: Regime | None = "underfilled" if ns < thresholds.SHORT_KERNEL_NS else None
    return _reading("kernel_length", ns, "ns", f"median kernel {duration(ns)}", says=says)


def _peers(figures: DeviceAnalysis, peers: Straggler | None) -> Reading:
    if peers is not None and peers.waiting_ns is not None:
        share = min(peers.waiting_ns / max(figures.communication_ns, 1), 1.0)
        note = f"{percent(share)} of the time in collectives is before the last peer came"
        return _reading("peers", share, "share of collectives", note, says="communication")
    spread = figures.signals.collective_spread
    if spread is None or spread < thresholds.WAITS_TIMES:
        return abstention("peers", "share of collectives", "the other ranks' traces are not here")
    note = (
        f"one collective takes {spread:.0f} times as long as its usual short call: the rest is waiting for a"
        " peer, whose trace is not here"
    )
    return _reading("peers", spread, "times", note, says="communication")


def _of_span(share: float) -> str:
    """What is there is never said to be nothing."""
    return percent(share) if share >= 0.01 else "under 1 %"


def _reading(
    signal: str,
    value: float,
    unit: str,
    note: str,
    *,
    says: Regime | None = None,
    against: tuple[Regime, ...] = (),
) -> Reading:
    return Reading(signal=signal, value=value, unit=unit, note=note, says=says, against=against, firm=True)
