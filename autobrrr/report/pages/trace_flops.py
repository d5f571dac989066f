"""FLOPs share against runtime share by class of kernel: why the other operations take so long.

In a transformer nearly all FLOPs are in contractions, but far less of the time. Only there where shapes
were recorded, for else the contractions' work, against which all is held, is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.quantities import share as percent
from autobrrr.trace.kernels.kernel_classes import CONTRACTIONS
from autobrrr.trace.trace_records import DeviceAnalysis

FOOTNOTE = "* one operation an element: the least there can be"
WHOLE_AT = 0.95  # of a class's time: less is said
ENOUGH = 0.5  # of the contractions' time: shares of less would mislead


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopsRow:
    """One class; None where its work is not known."""

    name: str
    flops_share: float | None  # of all that could be counted
    time_share: float  # of all kernel time
    flops_per_s: float | None
    times_slower: float | None  # than the quickest contraction class
    counted_share: float  # of the class's time


def flops_rows(device: DeviceAnalysis) -> list[FlopsRow]:
    """Classes with the most FLOPs first, those of unknown work last; empty without any contraction's."""
    known = {
        name: (each.flops, each.counted_ns)
        for name, each in device.kernels.items()
        if each.flops and each.counted_ns
    }
    speeds = {name: flops / ns * 1e9 for name, (flops, ns) in known.items()}
    contractions = [name for name in CONTRACTIONS if name in device.kernels]
    counted_ns = sum(known[name][1] for name in contractions if name in known)
    if counted_ns == 0 or counted_ns < ENOUGH * sum(device.kernels[name].ns for name in contractions):
        return []
    quickest = max(speeds[name] for name in contractions if name in speeds)
    whole = sum(flops for flops, _ in known.values())
    rows = [
        FlopsRow(
            name=name,
            flops_share=known[name][0] / whole if name in known else None,
            time_share=each.share,
            flops_per_s=speeds.get(name),
            times_slower=quickest / speeds[name] if name in speeds else None,
            counted_share=known[name][1] / each.ns if name in known and each.ns else 0.0,
        )
        for name, each in device.kernels.items()
    ]
    return sorted(rows, key=lambda row: (-(row.flops_share or 0.0), -row.time_share))


def fine_share(share: float) -> str:
    """A share in percent; what is nearly nothing or nearly all does not pass for it."""
    if 0 < share < 0.0001:
        return "<0.01 %"
    return ">99.99 %" if 0.9999 < share < 1 else percent(share, 2)


def note(row: FlopsRow) -> str:
    """What keeps the row from being the whole truth."""
    if row.flops_share is None:
        return "work not recorded"
    words = [] if row.counted_share >= WHOLE_AT else [f"{percent(row.counted_share)} of it counted"]
    if row.name not in CONTRACTIONS:
        words.append("*")
    return " ".join(words)
