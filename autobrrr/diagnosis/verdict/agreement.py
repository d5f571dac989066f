"""The visible table: which two signals, when both say so, may carry a regime.

One signal is never enough, and two readings of one clock are not two signals. A regime that has
no row here is never named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.signal_reading import Reading
from autobrrr.records import Regime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two signals that may carry a regime together."""

    regime: Regime
    first: str
    second: str
    independent: str  # why they are two
    in_place_of: str | None = None  # the pair counts only where this signal abstained
    second_within: tuple[float, float] | None = None  # the second counts by its value, whatever it says
    without: Regime | None = None  # the pair counts only where traced steps exclude this regime


AGREEMENT: tuple[Pair, ...] = (
    Pair(regime="overhead", first="traced_steps", second="batch_probe",
        independent="time inside operators of real steps; growth of whole replays with the batch"),
    Pair(regime="overhead", first="traced_steps", second="op_cost",
        independent="time inside operators; their number times what one takes, calibrated elsewhere",
        in_place_of="batch_probe"),
    Pair(regime="overhead", first="traced_steps", second="phase_frames",
        independent="time inside operators; stacks sampled by another thread"),
    Pair(regime="overhead", first="roofline", second="oversubscription",
        independent="work of the shapes under roofs measured apart; the scheduler's queue for the CPUs"),
    Pair(regime="input", first="loader_wait", second="loader_queue",
        independent="the loop's clock around `next`; states of the workers' queue"),
    Pair(regime="input", first="loader_wait", second="loader_frames",
        independent="the loop's clock around `next`; stacks sampled by another thread"),
    Pair(regime="host", first="host_time", second="host_frames",
        independent="what phases and kernels leave of the step; stacks sampled by another thread"),
    Pair(regime="host", first="profiler_window", second="host_frames",
        independent="gaps between operators in the profiler's trace; stacks sampled by another thread"),
    Pair(regime="communication", first="collective_wait", second="blocked_thread",
        independent="clocks of DistributedDataParallel and around calls; the scheduler's of the thread"),
    Pair(regime="memory", first="kernel_time", second="traffic",
        independent="time inside operators; bytes of their shapes over a bandwidth measured apart"),
    Pair(regime="memory", first="kernel_time", second="batch_probe",
        independent="time inside operators; a step that hardly grows with the batch, and is no dispatch",
        second_within=(thresholds.PROBE_FLAT, 1.0), without="overhead"),
    Pair(regime="compute", first="kernel_time", second="matmul_rate",
        independent="time inside products; FLOPs of their shapes over a peak measured apart"),
    Pair(regime="compute", first="kernel_time", second="batch_probe",
        independent="time inside products; growth of whole replays with the batch",
        second_within=(0.0, thresholds.PROBE_GROWS)),
    Pair(regime="underfilled", first="roofline", second="traced_steps",
        independent="work of the shapes under roofs measured apart; time that kernels leave idle",
        second_within=(0.0, thresholds.NAMED_AT)),
)  # fmt: skip
_BESIDE_TIMELINE: tuple[tuple[Regime, str, str], ...] = (
    ("overhead", "run_ahead", "ends of launch calls"),
    ("overhead", "host_busy", "the launching threads'"),
    ("input", "awaited_copy", "which operation ends a gap"),
    ("input", "host_in_loader", "the main thread's"),
    ("sync", "blocked_calls", "calls that wait"),
    ("host", "host_code", "Python frames"),
    ("communication", "peers", "that of the other ranks"),
    ("compute", "arithmetic", "FLOPs of the shapes over the spec sheet's peak"),
    ("memory", "bandwidth", "bytes of the grids over the spec sheet's bandwidth"),
    ("underfilled", "arithmetic", "names, grids and work of the kernels"),
    ("underfilled", "bandwidth", "names, grids and work of the kernels"),
    ("underfilled", "kernel_length", "names, grids and length of the kernels"),
)
TIMELINE: tuple[Pair, ...] = tuple(  # a device's own timeline, beside what is read off something else
    Pair(regime=regime, first="time_split", second=second, independent=f"the device's timeline; {beside}")
    for regime, second, beside in _BESIDE_TIMELINE
)
MARGIN = 0.05  # a value so far inside its limits is firm


def carried(readings: Mapping[str, Reading], pairs: Sequence[Pair] = AGREEMENT) -> list[Pair]:
    """The pairs that carry a regime which no signal opposes, firm ones first."""
    found = [
        pair
        for pair in pairs
        if _says(readings, pair.first, pair.regime)
        and _seconds(readings, pair)
        and (pair.in_place_of is None or readings[pair.in_place_of].abstained)
        and not opposed(readings, pair.regime)
    ]
    return sorted(found, key=lambda pair: not both_firm(readings, pair))


def both_firm(readings: Mapping[str, Reading], pair: Pair) -> bool:
    """Whether both signals of a pair that carries its regime are firm."""
    second, limits = readings[pair.second], pair.second_within
    return readings[pair.first].firm and (second.firm if limits is None else within(second, limits, MARGIN))


def opposed(readings: Mapping[str, Reading], regime: Regime) -> list[Reading]:
    """Readings that exclude a regime."""
    return [reading for reading in readings.values() if regime in reading.against and not reading.abstained]


def supported(readings: Mapping[str, Reading], regime: Regime) -> list[Reading]:
    """Readings that speak for a regime."""
    return [reading for reading in readings.values() if reading.says == regime and not reading.abstained]


def partners(first: str, regime: Regime) -> list[str]:
    """The signals that could carry a regime together with one."""
    rows = [pair for pair in AGREEMENT if pair.regime == regime and first in (pair.first, pair.second)]
    return [pair.second if pair.first == first else pair.first for pair in rows]


def _seconds(readings: Mapping[str, Reading], pair: Pair) -> bool:
    if pair.without is not None and pair.without not in readings["traced_steps"].against:
        return False
    if pair.second_within is None:
        return _says(readings, pair.second, pair.regime)
    return within(readings.get(pair.second), pair.second_within)


def within(reading: Reading | None, limits: tuple[float, float], margin: float = 0.0) -> bool:
    """Whether a reading's value lies between limits; an end at 0 or 1 is open."""
    if reading is None or reading.abstained or reading.value is None:
        return False
    low, high = limits
    return (low <= 0 or reading.value >= low + margin) and (high >= 1 or reading.value <= high - margin)


def _says(readings: Mapping[str, Reading], signal: str, regime: Regime) -> bool:
    reading = readings.get(signal)
    return reading is not None and not reading.abstained and reading.says == regime
