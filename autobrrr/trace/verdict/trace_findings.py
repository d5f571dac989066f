"""What stands out in a trace, a sentence each: idle time in one place, time slices, waiting collectives."""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.quantities import duration
from autobrrr.quantities import share as percent
from autobrrr.trace.device.steady_part import Steady
from autobrrr.trace.trace_records import DeviceAnalysis
from autobrrr.trace.verdict.trace_advice import group_words

HALF = 0.5  # of the idle time: a group of gaps that holds it is the one to look at
IDLE_FROM = 0.1  # of the span: less idle time is no finding


def trace_findings(figures: DeviceAnalysis, steady: Steady) -> list[str]:
    """The findings on one device."""
    found = []
    idle = figures.idle_ns / max(figures.span_ns, 1)
    if figures.gap_groups and idle >= IDLE_FROM and figures.gap_groups[0].share >= HALF:
        group = figures.gap_groups[0]
        found.append(f"{percent(group.share)} of the idle time lies in one place: {group_words(group)}")
    if steady.slice_ns is not None:
        found.append(
            f"{steady.time_slices} equal gaps of {duration(steady.slice_ns)} begin after the launch, with"
            " nothing running: another process uses the device in turn"
        )
    spread = figures.signals.collective_spread
    if spread is not None and spread >= thresholds.WAITS_TIMES:
        found.append(
            f"one collective takes up to {spread:.0f} times as long as its usual short call: it waits for a"
            " peer"
        )
    return found
