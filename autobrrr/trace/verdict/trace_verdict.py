"""The verdict on one device: a regime where two independent signals agree, else why not.

The words and rules are those of a live job: a regime holds at least half of the time, leads by 15
points, and a second signal that is read off something else names it too.
"""

from __future__ import annotations

from typing import cast

from msgspec import Struct

from autobrrr.quantities import share as percent
from autobrrr.records import Confidence, Evidence, Regime, Shares
from autobrrr.trace.causes.host_causes import CAUSE_WORDS
from autobrrr.trace.device.steady_part import Steady
from autobrrr.trace.device.time_parts import regime_ns
from autobrrr.trace.trace_records import DeviceAnalysis, Straggler
from autobrrr.trace.verdict.trace_signals import AGREEMENT, LEAD, NAMED_AT, read_signals

REGIMES = ("overhead", "input", "host", "sync", "communication", "memory", "compute", "underfilled", "other")
_RECORD_SHAPES = "profile again with record_shapes=True: work against the roofs would decide"
_ALL_RANKS = "analyze the traces of all ranks together: who comes last would decide"
_STEADY = "profile steady steps: schedule(wait=5, warmup=5, active=10)"
_NEEDS = {
    "compute": _RECORD_SHAPES,
    "memory": _RECORD_SHAPES,
    "communication": _ALL_RANKS,
    "overhead": "profile with ProfilerActivity.CPU as well: the host's side is missing",
    "underfilled": _RECORD_SHAPES,
    "input": "profile whole steps, the loader's __next__ included",
    "sync": "profile with with_stack=True: the waits' places would decide",
    "host": "profile more steps, with with_stack=True: whether it comes back, and whose it is, would decide",
}
_MEANS = {
    "overhead": "the device waits for Python, the dispatcher and launches",
    "input": "the device waits for the next batch",
    "sync": "the host waits for the device, and the device then for the host",
    "host": "the host computes something itself, in Python or in operators on the CPU",
    "communication": "collectives run with nothing beside them",
    "memory": "kernels that move data",
    "compute": "matrix products, convolutions and attention",
    "underfilled": "kernels too small to fill the device, back to back",
}


class TraceVerdict(Struct, frozen=True, kw_only=True):
    regime: Regime
    confidence: Confidence
    reason: str
    decide_with: str | None
    shares: Shares
    evidence: list[Evidence]


def judge(
    figures: DeviceAnalysis, steady: Steady, peers: Straggler | None = None, blame: str = ""
) -> TraceVerdict:
    """Judge one device.

    Args:
        figures: What was found of it.
        steady: Its time by regime, early steps left out.
        peers: How it stands among the other ranks, where their traces are known.
        blame: Who keeps it waiting, in words.
    """
    shares = shares_of(steady)
    record = Shares(**{name: round(share, 4) for name, share in shares.items()})
    evidence = read_signals(figures, steady, shares, peers)
    regime, reason, decide = _decide(figures, steady, shares, evidence, blame)
    firm = (
        regime not in ("mixed", "unknown")
        and shares[regime] >= NAMED_AT + 0.1
        and figures.idle_clock_corrected is None
        and figures.kernel_count >= 100
    )
    if figures.idle_clock_corrected is not None:
        reason += "; the clocks disagree, and the shares are those after a constant correction"
    return TraceVerdict(
        regime=regime,
        confidence="high" if firm else "low",
        reason=reason,
        decide_with=decide,
        shares=record,
        evidence=evidence,
    )


def shares_of(steady: Steady) -> dict[str, float]:
    """Shares of the device's time; they sum to one."""
    by_regime = regime_ns(steady.parts_ns)
    total = sum(by_regime.values())
    return {name: by_regime.get(name, 0) / total if total else 0.0 for name in REGIMES}


def _decide(
    figures: DeviceAnalysis, steady: Steady, shares: dict[str, float], evidence: list[Evidence], blame: str
) -> tuple[Regime, str, str | None]:
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    (first, lead), (_, next_) = ranked[0], ranked[1]
    if first == "other" and lead >= 0.4:
        return "unknown", _unexplained(figures, steady, lead), _STEADY
    if lead < NAMED_AT or lead - next_ < LEAD:
        text = ", ".join(f"{name} {percent(share)}" for name, share in ranked[:3] if share >= 0.05)
        return "mixed", f"no regime holds half of {figures.judged_time} and leads by 15 points: {text}", None
    says = {each.signal: each for each in evidence}
    for one, other in AGREEMENT.get(first, ()):
        if says[one].says == first and says[other].says == first:
            return cast(Regime, first), _named(first, lead, says[other], blame, figures), None
    against = [each for each in evidence if first in each.against]
    if against:
        note = against[0]
        why = f"{first} holds {percent(lead)} of {figures.judged_time}, but {_words(note)} speaks against it:"
        why += f" {note.note}"
        return "mixed", why, _needs(first, figures)
    missing = [says[other] for _, other in AGREEMENT.get(first, ())]
    notes = "; ".join(f"{_words(each)}: {each.note}" for each in missing)
    return (
        "unknown",
        f"{first} holds {percent(lead)} of {figures.judged_time} ({_MEANS.get(first, first)}), and no second"
        " signal names it"
        f" ({notes})",
        _needs(first, figures),
    )


def _needs(first: str, figures: DeviceAnalysis) -> str | None:
    """What would decide; shapes that were recorded need not be recorded again."""
    needs = _NEEDS.get(first)
    return None if needs == _RECORD_SHAPES and figures.signals.shapes_recorded else needs


def _named(first: str, lead: float, second: Evidence, blame: str, figures: DeviceAnalysis) -> str:
    text = f"{percent(lead)} of {figures.judged_time}: {_MEANS[first]}"
    text += f"; {_words(second)} agrees ({second.note})"
    if first == "overhead":
        causes = sorted(
            ((ns, cause) for cause, ns in figures.host_late_by_cause_ns.items() if cause in _OVERHEAD),
            reverse=True,
        )
        if causes and causes[0][0]:
            text += f"; most of it {CAUSE_WORDS[causes[0][1]]}"
    return f"{text}; {blame}" if blame and first == "communication" else text


_OVERHEAD = ("op_dispatch", "python", "optimizer", "allocation")


def _words(each: Evidence) -> str:
    return each.signal.replace("_", " ")


def _unexplained(figures: DeviceAnalysis, steady: Steady, lead: float) -> str:
    """What most of the time that no regime claims is."""
    parts = (
        (steady.first_use_ns, "first launches, loading, graph capture and compilation"),
        (
            steady.queued_ns,
            "waiting long after the launch: on other streams, inside graphs, or for a shared device",
        ),
        (steady.unmatched_ns, "idle time whose launch call is not in the file"),
        (steady.untraced_ns, "time in which the host recorded nothing"),
        (steady.long_operators_ns, "operators that always hold the host for long: they compute on the CPU"),
        (
            steady.held_up_ns,
            "single operators that are short otherwise: first uses, or other load on the CPU",
        ),
    )
    ns, what = max(parts)
    total = sum(steady.parts_ns.values())
    share = ns / total if total else 0.0
    return f"{percent(lead)} of {figures.judged_time} belongs to no regime, {percent(share)} is {what}"
