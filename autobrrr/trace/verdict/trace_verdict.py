"""The verdict on one device: its timeline fills the ledger, and the rules of a live job decide.

In come the device's figures, its time by part and its place among the ranks. Out goes a verdict: a
regime where two signals of `TIMELINE` agree, who limits the step, and rows that sum to the judged time.

Where only the host was recorded (a job on CPUs, or a profile without its device), its main thread tells who
limits the step, and no regime. Inside operators a CPU computes and dispatches: short ones name nobody, long
ones kernels, but never with high confidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

import numpy as np

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.models.leading import leads_all, limit_leads
from autobrrr.diagnosis.part_names import WHO, WORDS, listed, mixture, no_single
from autobrrr.diagnosis.signal_reading import Reading, contradicted, unconfirmed
from autobrrr.diagnosis.verdict.agreement import TIMELINE, Pair, both_firm, carried, opposed
from autobrrr.quantities import duration
from autobrrr.quantities import share as percent
from autobrrr.records import LIMIT_OF_REGIME, NAMES_NOBODY, Confidence, LedgerRow, Limit, Regime, Shares
from autobrrr.trace.causes.host_causes import ALLOCATION, DATA_LOADER, OP_DISPATCH, OPTIMIZER, SYNCHRONISATION
from autobrrr.trace.causes.idle_causes import HostTimeline
from autobrrr.trace.device.steady_part import Steady
from autobrrr.trace.device.time_parts import BUSY, OTHER, PARTS
from autobrrr.trace.reading.trace_columns import OPERATOR, Trace
from autobrrr.trace.timeline.launches import LaunchCalls
from autobrrr.trace.timeline.trace_steps import StepMark
from autobrrr.trace.trace_records import DeviceAnalysis, Straggler, TraceAdvice, TraceVerdict
from autobrrr.trace.verdict.trace_advice import Saving
from autobrrr.trace.verdict.trace_signals import is_sure, read_signals

NO_DEVICE = "no GPU operation in the trace"

STEADY = "profile steady steps: schedule(wait=5, warmup=5, active=10)"
_RECORD_SHAPES = "profile again with record_shapes=True: work against the roofs would decide"
_NEEDS = {
    "compute": _RECORD_SHAPES,
    "memory": _RECORD_SHAPES,
    "communication": "analyze the traces of all ranks together: who comes last would decide",
    "overhead": "profile with ProfilerActivity.CPU as well: the host's side is missing",
    "underfilled": _RECORD_SHAPES,
    "input": "profile whole steps, the loader's __next__ included",
    "sync": "profile with with_stack=True: the waits' places would decide",
    "host": "profile more steps, with with_stack=True: whether it comes back, and whose it is, would decide",
}
SOURCE = "timeline"
_OPERATORS = (OP_DISPATCH, OPTIMIZER, ALLOCATION, SYNCHRONISATION)
_WHO_ON_HOST = {**WHO, "kernels": "operators", "host": "Python between operators"}


def judge(
    figures: DeviceAnalysis, steady: Steady, peers: Straggler | None = None, blame: str = ""
) -> TraceVerdict:
    """Judge one device.

    Args:
        figures: What was found of it.
        steady: Its time by part, early steps left out.
        peers: How it stands among the other ranks, where their traces are known.
        blame: Who keeps it waiting, in words.
    """
    rows = ledger(steady)
    shares = dict.fromkeys(Shares.__struct_fields__, 0.0) | _summed(rows, "regime")
    readings = {each.signal: each for each in read_signals(figures, steady, shares, peers)}
    regime, confidence, reason, decide = _regime(shares, readings, rows, figures)
    limit, sure = _limit(_summed(rows, "limit"), regime, figures)
    return TraceVerdict(
        regime=regime,
        confidence=confidence,
        reason=_blamed(reason, blame, regime),
        decide_with=STEADY if limit == "startup" else decide,
        shares=Shares(**{name: round(share, 4) for name, share in shares.items()}),
        evidence=[each.evidence() for each in readings.values()],
        limit=limit,
        limit_confidence=sure,
        limit_reason=_blamed(_limit_reason(limit, rows, figures, steady) or reason, blame, limit),
        ledger=rows,
    )


def ledger(steady: Steady) -> list[LedgerRow]:
    """Every nanosecond of the judged time in one row, the largest first."""
    total = max(sum(steady.parts_ns.values()), 1)
    return [
        LedgerRow(
            phase="busy" if name in BUSY else "idle",
            kind=name,
            where=steady.places.get(name),
            ns=ns,
            share=ns / total,
            source=SOURCE,
        )
        for name, ns in sorted(steady.parts_ns.items(), key=lambda item: -item[1])
        if ns
    ]


def _summed(rows: list[LedgerRow], level: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in rows:
        name = getattr(PARTS[row.kind], level) or OTHER
        found[name] = found.get(name, 0.0) + row.share
    return found


def _regime(
    shares: Mapping[str, float],
    readings: Mapping[str, Reading],
    rows: list[LedgerRow],
    figures: DeviceAnalysis,
) -> tuple[Regime, Confidence, str, str | None]:
    """The regime, how sure, why, and what would decide where it is not named."""
    first = max(shares, key=lambda name: shares[name])
    if first == OTHER and shares[first] >= thresholds.UNEXPLAINED_AT:
        unnamed = listed((row.share, PARTS[row.kind].words) for row in rows if not PARTS[row.kind].regime)
        return "unknown", "low", f"no regime has it: {unnamed}", STEADY
    if not leads_all(first, shares):
        return "mixed", "low", mixture(shares), None
    for one in carried(readings, TIMELINE):
        if one.regime == first:
            confidence: Confidence = "high" if both_firm(readings, one) else "low"
            return one.regime, confidence, _named(shares[first], one, readings), None
    needs = _NEEDS.get(first)
    if needs == _RECORD_SHAPES and figures.signals.shapes_recorded:
        needs = None
    deniers = opposed(readings, cast(Regime, first))
    if deniers:
        return "mixed", "low", contradicted(readings["time_split"], deniers[0]), needs
    seconds = [readings[pair.second] for pair in TIMELINE if pair.regime == first]
    return "unknown", "low", f"{percent(shares[first])} is {WORDS[first]}: {unconfirmed(seconds)}", needs


def _named(share: float, pair: Pair, readings: Mapping[str, Reading]) -> str:
    return f"{percent(share)} is {WORDS[pair.regime]}: {readings[pair.second].note}"


def _limit(shares: Mapping[str, float], regime: Regime, figures: DeviceAnalysis) -> tuple[Limit, Confidence]:
    """Who limits the device, never against a regime that two signals carry, and how sure."""
    named = leading_limit(shares)
    if named is None and regime not in NAMES_NOBODY:
        return LIMIT_OF_REGIME[regime], "low"
    if named is None:
        unexplained = shares.get(OTHER, 0.0) >= thresholds.KERNELS_RIVAL * max(shares.values(), default=0.0)
        return "unknown" if unexplained else "mixed", "low"
    firm = shares[named] >= thresholds.LIMIT_FIRM_AT and is_sure(figures)
    return named, "high" if firm else "low"


def leading_limit(shares: Mapping[str, float]) -> Limit | None:
    """Who limits by the shares alone; None where nobody leads."""
    if shares.get("shared", 0.0) >= thresholds.SHARED_NAMED_AT:
        return "shared"
    first = max(shares, key=lambda name: shares[name], default=OTHER)
    if first not in get_args(Limit) or not limit_leads(first, shares):
        return None
    rival = max((share for name, share in shares.items() if name != first), default=0.0)
    beside = rival >= thresholds.KERNELS_RIVAL * shares[first] or shares[first] < thresholds.KERNELS_NAMED_AT
    return None if first == "kernels" and beside else cast(Limit, first)


def _limit_reason(limit: Limit, rows: list[LedgerRow], figures: DeviceAnalysis, steady: Steady) -> str:
    """What the limit consists of; empty where the regime's reason says it."""
    if limit == "mixed":
        return no_single(_summed(rows, "limit"))
    text = listed((row.share, PARTS[row.kind].words) for row in rows if PARTS[row.kind].limit == limit)
    if limit == "shared" and steady.slice_ns is not None:
        text += f": {steady.time_slices} gaps of {duration(steady.slice_ns)} each"
    later = f" (after the first {duration(figures.left_out_ns)})" if figures.left_out_ns else ""
    return text and f"{text}{later}"


def _blamed(text: str, blame: str, named: str) -> str:
    return f"{text}; {blame}" if blame and named == "communication" else text


def host_verdict(
    trace: Trace, timeline: HostTimeline, calls: LaunchCalls, marks: list[StepMark]
) -> tuple[TraceVerdict, list[TraceAdvice]]:
    """The verdict on a trace without any operation of a device, and what to do."""
    if trace.accelerator is not None:
        why = f"{trace.accelerator} ran this job; analyze reads what NVIDIA and AMD devices record"
        return TraceVerdict(limit_reason=why, reason=why), []
    host = trace.host
    on_device = bool(trace.metadata.devices) or bool(calls.launching.any())
    profile = "profile with ProfilerActivity.CUDA" if on_device else None
    nobody = TraceVerdict(limit_reason=NO_DEVICE, reason=NO_DEVICE, decide_with=profile)
    operators = host.thread[host.kind == OPERATOR]
    if len(operators) == 0:
        return nobody, []
    main = timeline.main_thread(int(np.bincount(operators).argmax()))
    lasting = [mark for mark in marks if not mark.early]
    own = host.thread == main
    start = min((mark.start for mark in lasting), default=int(host.start[own].min()))
    end = max((mark.end for mark in lasting), default=int(host.end[own].max()))
    span = max(end - start, 1)
    loader = timeline.busy_ns([main], start, end, (DATA_LOADER,))
    inside = timeline.busy_ns([main], start, end, _OPERATORS)
    count = int((own & (host.kind == OPERATOR) & (host.start >= start) & (host.end <= end)).sum())
    inner = "kernels" if inside >= count * thresholds.DISPATCH_NS / thresholds.EXCLUDED_AT else "short"
    shares = {"input": loader / span, inner: inside / span, "host": 1 - (loader + inside) / span}
    limit: Limit = leading_limit(shares) or "mixed"
    if on_device and limit != "input":
        return nobody, []
    sure = limit == "input" and shares["input"] >= thresholds.LIMIT_FIRM_AT and not on_device
    said = listed((shares[name], _WHO_ON_HOST[name]) for name in shares)
    waits = Saving("data_loader", loader, {"who": "Training", "pinned": ""})
    found = TraceVerdict(
        limit=limit,
        limit_confidence="high" if sure else "low",
        limit_reason=no_single(shares) if limit == "mixed" else said,
        reason=f"{NO_DEVICE}: the host's timeline is the only signal",
    )
    return found, [waits.advice(span)] * (limit == "input")
