"""FLOPs share against runtime share by class of kernel: why the other operations take so long.

In a transformer nearly all FLOPs are in contractions, but far less of the time. Only there where shapes
were recorded, for else the contractions' work, against which all is held, is not known.
"""

from __future__ import annotations

from autobrrr.quantities import share as percent
from autobrrr.report import page_model as pm
from autobrrr.trace.kernels.kernel_classes import CONTRACTIONS
from autobrrr.trace.trace_records import DeviceAnalysis, KernelClass

TITLE = "FLOPs against time, of what could be counted. * one operation an element: the least there can be"
WHOLE_AT = 0.95  # of a class's time: less is said
ENOUGH = 0.5  # of the contractions' time: shares of less would mislead


def flops_table(device: DeviceAnalysis) -> pm.PageTable:
    """Classes with the most FLOPs first, those of unknown work last; no rows without any contraction's."""
    known = {
        name: (each.flops, each.counted_ns)
        for name, each in device.kernels.items()
        if each.flops and each.counted_ns
    }
    speeds = {name: flops / ns for name, (flops, ns) in known.items()}
    contractions = [name for name in CONTRACTIONS if name in device.kernels]
    counted_ns = sum(known[name][1] for name in contractions if name in known)
    enough = counted_ns > 0 and counted_ns >= ENOUGH * sum(device.kernels[name].ns for name in contractions)
    quickest = max((speeds[name] for name in contractions if name in speeds), default=0.0)
    whole = sum(flops for flops, _ in known.values())

    def row(name: str, found: KernelClass) -> list[pm.Value]:
        flops, its_ns = known.get(name, (None, 0))
        made = None if flops is None else flops / whole
        slower = quickest / speeds[name] if name in speeds else None
        return [
            pm.swatch(name, name),
            pm.figure("" if made is None else _fine_share(made), made),
            "" if made is None else pm.bar(made, name),
            *(found.share, pm.bar(found.share, name), teraflops(speeds.get(name))),
            pm.figure("" if slower is None else f"{slower:.3g}x", slower),
            pm.Cell(text=_note(name, None if flops is None else its_ns / found.ns), tone="muted"),
        ]

    def first(item: tuple[str, KernelClass]) -> tuple[float, float]:
        return -known.get(item[0], (0.0, 0))[0], -item[1].share

    heads = ("class", "#FLOPs", "-", "kernel time:share", "-", "#TFLOP/s", "#slower", "note")
    ordered = sorted(device.kernels.items(), key=first) if enough else []
    return pm.table(TITLE, heads, [row(*each) for each in ordered])


def teraflops(flops_per_ns: float | None) -> pm.Cell:
    return pm.figure("" if flops_per_ns is None else f"{flops_per_ns / 1e3:.3g}", flops_per_ns)


def _fine_share(share: float) -> str:
    """A share in percent; what is nearly nothing or nearly all does not pass for it."""
    if 0 < share < 0.0001:
        return "<0.01 %"
    return ">99.99 %" if 0.9999 < share < 1 else percent(share, 2)


def _note(name: str, counted: float | None) -> str:
    """What keeps a class's row from being the whole truth; `counted` is the share of its time."""
    if counted is None:
        return "work not recorded"
    words = [] if counted >= WHOLE_AT else [f"{percent(counted)} of it counted"]
    if name not in CONTRACTIONS:
        words.append("*")
    return " ".join(words)
