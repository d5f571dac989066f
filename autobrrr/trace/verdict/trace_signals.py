"""What each signal of a trace says alone, and which pairs of them may carry which regime.

Signals of one pair are read off different things: the device's timeline, the host's, names and
grids, shapes, the peers' clocks. Two readings of one timeline are no pair.
"""

from __future__ import annotations

from autobrrr.quantities import duration
from autobrrr.quantities import share as percent
from autobrrr.records import Evidence
from autobrrr.trace.device.steady_part import Steady
from autobrrr.trace.trace_records import DeviceAnalysis, DeviceSignals, Straggler

NAMED_AT = 0.5
LEAD = 0.15
FULL_AT = 0.5  # of a roof: work that a regime of compute or memory must reach
FROM_CACHE_AT = 1.3
HOLLOW_AT = 0.3  # of a roof: below it the device is not filled
SHORT_KERNEL_NS = 10_000
WAITS_FROM = 1_000  # times: no message of one size varies so much by itself

# regime: pairs of signals, each of which names it.
AGREEMENT: dict[str, tuple[tuple[str, str], ...]] = {
    "overhead": (("time_split", "run_ahead"), ("time_split", "host_busy")),
    "input": (("time_split", "awaited_copy"), ("time_split", "host_in_loader")),
    "sync": (("time_split", "blocked_calls"),),
    "host": (("time_split", "host_code"),),
    "communication": (("time_split", "peers"),),
    "compute": (("time_split", "arithmetic"),),
    "memory": (("time_split", "bandwidth"),),
    "underfilled": (
        ("time_split", "arithmetic"),
        ("time_split", "bandwidth"),
        ("time_split", "kernel_length"),
    ),
}


def read_signals(
    figures: DeviceAnalysis, steady: Steady, shares: dict[str, float], peers: Straggler | None
) -> list[Evidence]:
    """All signals of one device."""
    seen = figures.signals
    return [
        _time_split(shares),
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


def _time_split(shares: dict[str, float]) -> Evidence:
    first, second = sorted(shares.items(), key=lambda item: -item[1])[:2]
    leads = first[1] >= NAMED_AT and first[1] - second[1] >= LEAD and first[0] != "other"
    return Evidence(
        signal="time_split",
        says=first[0] if leads else None,
        value=round(first[1], 4),
        unit="share of the device's time",
        note=f"{first[0]} {percent(first[1])}, then {second[0]} {percent(second[1])}",
        against=[name for name, share in shares.items() if share < 0.15 and name != "other"],
    )


def _run_ahead(seen: DeviceSignals) -> Evidence:
    share = seen.queue_empty_share
    delay = seen.queue_delay_median_ns
    note = "no launch calls to compare with"
    if share is not None and delay is not None:
        note = f"{percent(share)} of kernels began within 10 us of their launch; median {duration(delay)}"
    return _evidence(
        "run_ahead", share, "share of kernels", note,
        says="overhead" if share is not None and share >= NAMED_AT else None,
        against=["overhead", "input"] if share is not None and share <= 0.2 else [],
    )  # fmt: skip


def _host_busy(seen: DeviceSignals) -> Evidence:
    share = seen.host_busy_share
    return _evidence(
        "host_busy", share, "share of the span",
        "no host operators in the trace" if share is None else f"launching threads {percent(share)} of the"
        " span in operators, launches, Python",
        says="overhead" if share is not None and share >= 0.6 else None,
        against=["overhead"] if share is not None and share <= 0.3 else [],
    )  # fmt: skip


def _host_in_loader(seen: DeviceSignals) -> Evidence:
    share = seen.loader_share
    return _evidence(
        "host_in_loader", share, "share of the span",
        "no data loader was seen"
        if not share
        else f"main thread {_of_span(share)} of the span inside a data loader",
        says="input" if share is not None and share >= NAMED_AT else None,
        against=["input"] if share is not None and share <= 0.05 and seen.loader_share is not None else [],
    )  # fmt: skip


def _awaited_copy(steady: Steady) -> Evidence:
    share = steady.loader_idle_ended_by_copy
    return _evidence(
        "awaited_copy", share, "share of loader idle",
        "no idle time while loading" if share is None else f"{percent(share)} of the idle time while loading"
        " ends with an input copy",
        says="input" if share is not None and share >= NAMED_AT else None,
    )  # fmt: skip


def _blocked_calls(seen: DeviceSignals) -> Evidence:
    share = seen.sync_blocked_share
    return _evidence(
        "blocked_calls", share, "share of the span",
        "no synchronising calls"
        if share is None
        else f"launching threads {percent(share)} of the span inside synchronising calls",
        says="sync" if share is not None and share >= 0.15 else None,
        against=["sync"] if share is None or share <= 0.05 else [],
    )  # fmt: skip


def _host_code(figures: DeviceAnalysis, steady: Steady) -> Evidence:
    """Long stretches of Python count where they come back, and a frame names the user's code."""
    largest, places = steady.long_python_largest, figures.host_code
    if largest is None:
        return _evidence(
            "host_code", None, "gaps", "no stretch of Python of 1 ms or more while the device idles"
        )
    recurring = steady.long_python_gaps >= 5 and largest <= 0.5
    where = f"; most in {places[0].python}" if places else "; no Python stacks to name it"
    return _evidence(
        "host_code", steady.long_python_gaps, "gaps",
        f"{steady.long_python_gaps} gaps with Python of 1 ms or more, the largest {percent(largest)} of"
        f" them{where}",
        says="host" if recurring and places else None,
    )  # fmt: skip


def _arithmetic(seen: DeviceSignals) -> Evidence:
    value = seen.contraction_utilisation
    counted = seen.counted_flops_share or 0.0
    if value is None or counted < 0.5:
        return _evidence("arithmetic", None, "share of peak", _uncounted(seen))
    return _evidence(
        "arithmetic", value, "share of peak", f"contractions at {percent(value)} of the spec-sheet peak, over"
        f" {percent(counted)} of their time",
        says="compute" if value >= FULL_AT else "underfilled" if value < HOLLOW_AT else None,
        against=["compute"] if value < HOLLOW_AT else ["underfilled"] if value >= FULL_AT else [],
    )  # fmt: skip


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


def _bandwidth(seen: DeviceSignals) -> Evidence:
    value = seen.bandwidth_utilisation
    if value is None:
        return _evidence("bandwidth", None, "share of peak", "no streaming kernel with a known grid")
    if value > FROM_CACHE_AT:
        return _evidence(
            "bandwidth", value, "share of peak", "more than memory can move: it came from the cache"
        )
    return _evidence(
        "bandwidth", value, "share of peak", f"streaming kernels at {percent(value)} of memory's peak, bytes"
        " from grid and types",
        says="memory" if value >= FULL_AT else "underfilled" if value < HOLLOW_AT else None,
        against=["memory"] if value < HOLLOW_AT else ["underfilled"] if value >= FULL_AT else [],
    )  # fmt: skip


def _kernel_length(seen: DeviceSignals) -> Evidence:
    ns = seen.median_kernel_ns
    return _evidence(
        "kernel_length", ns, "ns", f"median kernel {duration(ns)}" if ns is not None else "no kernels",
        says="underfilled" if ns is not None and ns < SHORT_KERNEL_NS else None,
    )  # fmt: skip


def _peers(figures: DeviceAnalysis, peers: Straggler | None) -> Evidence:
    spread = figures.signals.collective_spread
    if peers is None or peers.waiting_ns is None:
        if spread is not None and spread >= WAITS_FROM:
            return _evidence(
                "peers", spread, "times", f"one collective takes {spread:.0f} times as long as its usual"
                " short call: the rest is waiting for a peer, whose trace is not here",
                says="communication",
            )  # fmt: skip
        return _evidence("peers", None, "share of collectives", "the other ranks' traces are not here")
    share = peers.waiting_ns / max(figures.communication_ns, 1)
    return _evidence(
        "peers", min(share, 1.0), "share of collectives", f"{percent(min(share, 1.0))} of the time in"
        " collectives is before the last peer came",
        says="communication",
    )  # fmt: skip


def _of_span(share: float) -> str:
    """What is there is never said to be nothing."""
    return percent(share) if share >= 0.01 else "under 1 %"


def _evidence(
    signal: str,
    value: float | None,
    unit: str,
    note: str,
    *,
    says: str | None = None,
    against: list[str] | None = None,
) -> Evidence:
    rounded = None if value is None else round(float(value), 4)
    return Evidence(signal=signal, says=says, value=rounded, unit=unit, note=note, against=against or [])
