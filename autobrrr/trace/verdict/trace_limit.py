"""Who limits the step on one device: an identity of its timeline, above the regime.

The device's time is divided among those who can hold a step up. One of them limits it where it
holds most of that time by a clear lead; what nobody can be named for counts as a rival. The
thresholds were set on 45 public traces, whose limits had been written down before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from msgspec import Struct

from autobrrr.quantities import duration
from autobrrr.quantities import share as percent
from autobrrr.records import LIMIT_OF_REGIME, NAMES_NOBODY, Confidence, Limit, Regime
from autobrrr.trace.device.steady_part import Steady
from autobrrr.trace.device.time_parts import OTHER, limit_ns
from autobrrr.trace.trace_records import DeviceAnalysis, TraceAdvice

NAMED_AT = 0.5  # of the device's time
LEAD = 0.15
KERNELS_NAMED_AT = 0.6  # kernels are what a step should be: they limit it where they take so much,
KERNELS_RIVAL = 0.5  # ... and nothing else half as much
FIRM_AT = 0.65
SHARED_NAMED_AT = 0.4  # of a device that two jobs use in turn, each waits for half of the time
FEW_KERNELS = 100
WORTH_NAMING = 1.05
LEAST_SHOWN = 0.05

WHO: Final[Mapping[str, str]] = {
    "host": "waits for the host",
    "input": "waits for data",
    "sync": "waits that the script asks for",
    "communication": "collectives with nothing beside them",
    "kernels": "kernels",
    "startup": "first launches, loading, graph capture and compilation",
    "shared": "waits while another process has the device",
    OTHER: "unexplained",
}
_KERNEL_PARTS = (
    ("contractions", "products"),
    ("movers", "moving tensors"),
    ("small_kernels", "kernels too small for the device"),
    ("other_operations", "copies on the device"),
)
_PARTS_OF: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "kernels": _KERNEL_PARTS,
    "host": (
        ("dispatch", "dispatch and Python"),
        ("launches", "launch calls"),
        ("python", "long stretches of Python"),
        ("operators_on_host", "operators that compute on the CPU"),
        ("held_up", "operators that are short otherwise: first uses, or other load on the CPU"),
        ("untraced_host", "the host, which recorded nothing"),
    ),
    "input": (
        ("loader", "waiting for the loader"),
        ("copies_in", "copies from the host"),
        ("copies_out", "copies to the host"),
    ),
}
_PAYS: Final[Mapping[str, str]] = {
    "launch_bound": "CUDA graphs or compilation",
    "host_code": "less Python between the operators",
    "data_loader": "more loader workers",
    "synchronisation": "fewer waits",
    "allocation": "steady allocations",
    "optimizer": "a fused optimizer",
    "fusion": "fusion",
    "tensor_cores": "tensor cores",
    "attention": "fused attention",
    "exposed_communication": "overlapping collectives",
    "input_copies": "asynchronous copies",
    "underfilled": "a larger batch",
    "padding": "padding",
}


class TraceLimit(Struct, frozen=True, kw_only=True):
    limit: Limit
    confidence: Confidence
    reason: str


def limit_of(
    figures: DeviceAnalysis, steady: Steady, regime: Regime, advice: Sequence[TraceAdvice], blame: str = ""
) -> TraceLimit:
    """Who limits one device.

    Args:
        figures: What was found of it.
        steady: Its time by part, early steps left out.
        regime: The second level, where two signals carry one.
        advice: What to do, the largest bound first.
        blame: Whom its collectives wait for, in words.
    """
    total = sum(steady.parts_ns.values())
    shares = {name: ns / total for name, ns in limit_ns(steady.parts_ns).items()} if total else {}
    named = named_part(shares)
    limit: Limit = named or _undecided(shares)
    if named is None and regime not in NAMES_NOBODY:
        limit = LIMIT_OF_REGIME[regime]
    firm = (
        named is not None
        and shares[named] >= FIRM_AT
        and figures.idle_clock_corrected is None
        and figures.kernel_count >= FEW_KERNELS
    )
    return TraceLimit(
        limit=limit,
        confidence="high" if firm else "low",
        reason=_sentence(limit, shares, figures, steady, blame) + _pays(limit, advice),
    )


def named_part(shares: Mapping[str, float]) -> Limit | None:
    """The one who limits; None where nobody leads."""
    ranked = sorted(((share, name) for name, share in shares.items()), reverse=True)
    if not ranked:
        return None
    lead, first = ranked[0]
    rival = ranked[1][0] if len(ranked) > 1 else 0.0
    if first == "kernels":
        return "kernels" if lead >= KERNELS_NAMED_AT and rival < KERNELS_RIVAL * lead else None
    if shares.get("shared", 0.0) >= SHARED_NAMED_AT:
        return "shared"
    if first == OTHER or lead < NAMED_AT or lead - rival < LEAD:
        return None
    return cast(Limit, first)


def _undecided(shares: Mapping[str, float]) -> Limit:
    return (
        "unknown" if not shares or shares.get(OTHER, 0.0) >= KERNELS_RIVAL * max(shares.values()) else "mixed"
    )


def _sentence(
    limit: Limit, shares: Mapping[str, float], figures: DeviceAnalysis, steady: Steady, blame: str
) -> str:
    if not shares:
        return "nothing of the device's time was recorded"
    ranked = sorted(((share, name) for name, share in shares.items() if share >= LEAST_SHOWN), reverse=True)
    if limit in NAMES_NOBODY:
        listed = ", ".join(f"{percent(share)} {WHO[name]}" for share, name in ranked[:3])
        return f"no single part takes most of {figures.judged_time}: {listed}"
    total = sum(steady.parts_ns.values())
    text = f"{percent(shares.get(limit, 0.0))} of {figures.judged_time} goes to {WHO[limit]}"
    inside = [(steady.parts_ns.get(part, 0) / total, words) for part, words in _PARTS_OF.get(limit, ())]
    listed = ", ".join(
        f"{percent(share)} {words}"
        for share, words in sorted(inside, reverse=True)[:3]
        if share >= LEAST_SHOWN
    )
    if listed:
        text += f": {listed}"
    if limit == "shared" and steady.slice_ns is not None:
        text += f": {steady.time_slices} gaps of {duration(steady.slice_ns)} each"
    return f"{text}; {blame}" if blame and limit == "communication" else text


def _pays(limit: Limit, advice: Sequence[TraceAdvice]) -> str:
    """What is worth most by its bound: one remedy, or two. First uses pass by themselves."""
    if limit in ("unknown", "startup", "shared"):
        return ""
    worth = [
        _PAYS[each.kind] for each in advice if each.kind in _PAYS and (each.gain or 0.0) >= WORTH_NAMING
    ][:2]
    if not worth:
        return ""
    return f"; {worth[0]} and {worth[1]} both pay" if len(worth) > 1 else f"; {worth[0]} would pay most"
