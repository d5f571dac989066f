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
    empty = share >= thresholds.QUEUE_EMPTY_AT
    queued = share <= thresholds.QUEUED_AT and delay >= thresholds.QUEUE_NS
    return _reading("run_ahead", share, "share of kernels", note, "overhead", speaks=empty, excludes=queued)


def _host_busy(seen: DeviceSignals) -> Reading:
    share = seen.host_busy_share
    if share is None:
        return abstention("host_busy", OF_SPAN, "no host operators in the trace")
    note = f"launching threads {percent(share)} of the span in operators, launches, Python"
    busy, free = share >= thresholds.HOST_BUSY_AT, share <= thresholds.HOST_FREE_AT
    return _reading("host_busy", share, OF_SPAN, note, "overhead", speaks=busy, excludes=free)


def _host_in_loader(seen: DeviceSignals) -> Reading:
    share = seen.loader_share
    if share is None:
        return abstention("host_in_loader", OF_SPAN, "no host operators in the trace")
    said = percent(share) if share >= 0.01 else "under 1 %"  # what is there is never said to be nothing
    note = f"main thread {said} of the span inside a data loader" if share else "no data loader was seen"
    loads, never = share >= thresholds.NAMED_AT, share <= thresholds.NEVER_AT
    return _reading("host_in_loader", share, OF_SPAN, note, "input", speaks=loads, excludes=never)


def _awaited_copy(steady: Steady) -> Reading:
    share, unit = steady.loader_idle_ended_by_copy, "share of loader idle"
    if share is None:
        return abstention("awaited_copy", unit, "no idle time while loading")
    note = f"{percent(share)} of the idle time while loading ends with an input copy"
    return _reading("awaited_copy", share, unit, note, "input", speaks=share >= thresholds.NAMED_AT)


def _blocked_calls(seen: DeviceSignals) -> Reading:
    share = seen.sync_blocked_share or 0.0
    note = f"launching threads {percent(share)} of the span inside synchronising calls"
    note = note if share else "no synchronising calls"
    waits, never = share >= thresholds.BLOCKED_AT, share <= thresholds.NEVER_AT
    return _reading("blocked_calls", share, OF_SPAN, note, "sync", speaks=waits, excludes=never)


def _host_code(figures: DeviceAnalysis, steady: Steady) -> Reading:
    """Long stretches of Python count where they come back, and a frame names the user's code."""
    lengths, places = steady.long_python_ns, figures.host_code
    if not lengths:
        why = "no stretch of Python of 1 ms or more while the device idles"
        return abstention("host_code", "gaps", why)
    where = f"; most in {places[0].python}" if places else "; no Python stacks to name it"
    largest = percent(max(lengths) / sum(lengths))
    note = f"{len(lengths)} gaps with Python of 1 ms or more, the largest {largest} of them{where}"
    recurring = "python" in steady.parts_ns and bool(places)
    return _reading("host_code", len(lengths), "gaps", note, "host", speaks=recurring)


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
    hollow: Regime = "underfilled"
    if value < thresholds.ROOF_LOW:
        full, hollow = hollow, full
    clear = not thresholds.ROOF_LOW <= value < thresholds.FULL_AT
    return Reading(
        signal=signal,
        value=value,
        unit=OF_PEAK,
        note=note,
        says=full if clear else None,
        against=(hollow,) if clear else (),
        firm=True,
    )


def _kernel_length(seen: DeviceSignals) -> Reading:
    ns = seen.median_kernel_ns
    if ns is None:
        return abstention("kernel_length", "ns", "no kernels")
    short = ns < thresholds.SHORT_KERNEL_NS
    return _reading("kernel_length", ns, "ns", f"median kernel {duration(ns)}", "underfilled", speaks=short)


def _peers(figures: DeviceAnalysis, peers: Straggler | None) -> Reading:
    unit, spread = "share of collectives", figures.signals.collective_spread
    if peers is not None and peers.waiting_ns is not None:
        value = min(peers.waiting_ns / max(figures.communication_ns, 1), 1.0)
        note = f"{percent(value)} of the time in collectives is before the last peer came"
    elif spread is None or spread < thresholds.WAITS_TIMES:
        return abstention("peers", unit, "the other ranks' traces are not here")
    else:
        value, unit = spread, "times"
        note = f"one collective takes {spread:.0f} times as long as its usual short call"
        note += ": the rest is waiting for a peer, whose trace is not here"
    return _reading("peers", value, unit, note, "communication", speaks=True)


def _reading(
    signal: str, value: float, unit: str, note: str, regime: Regime, *, speaks: bool, excludes: bool = False
) -> Reading:
    """A signal for and against one regime."""
    says, against = regime if speaks else None, (regime,) if excludes else ()
    return Reading(signal=signal, value=value, unit=unit, note=note, says=says, against=against, firm=True)
