"""The verdict on a GPU job: that of its profiler window's timeline, held against what plain steps show.

The trace is judged by `trace.verdict`, with the same words and rules, by two independent signals.
The profiler holds the host up, so all that it adds is taken off the time in which the device waits: what is
left of overhead is a lower bound. For whom the device waits in plain steps, its own events say (`host_slack`,
`host_lead`): they make a limit sure, or contradict it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.leading import measured_shares
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signal_reading import Reading
from autobrrr.diagnosis.signals.collectives import blocked_thread, collective_wait
from autobrrr.diagnosis.signals.device import NOT_LIMITING, Awaited, awaited, host_lead
from autobrrr.diagnosis.signals.dispatch import inflation
from autobrrr.diagnosis.verdict.undecided_reason import WITHHELD
from autobrrr.records import LIMIT_OF_REGIME, NAMES_NOBODY, Confidence, ProfilerWindow, Shares, Verdict

HOST_MADE = ("overhead", "host", "input", "sync")  # what grows where the host is held up
DISPATCH = ("overhead", "host")  # of it, what a profiler makes longer
IDLES = "and the device idles wherever the host is held up"
BUSY = "and the device has work queued wherever the host is held up"
KERNELS = ("memory", "compute", "underfilled")


def device_verdict(measured: Measurements, busy: Reading) -> Verdict | None:
    """The verdict of the last window; None where it saw no device.

    Args:
        busy: How long the training thread was ready and had no CPU: what the device waits for then is
            no doing of the job.
    """
    found = _of_window(measured)
    if found is not None and found.limit == "host":
        found = _behind_ranks(found, measured)
    elif found is not None and found.limit == "communication":
        found = _by_both_clocks(found, measured)
    delay = busy.value or 0.0
    if found is None or delay < thresholds.BUSY_AT:
        return found
    if delay >= thresholds.WITHHELD_AT and {found.regime, found.limit} & {*HOST_MADE}:
        withheld = _both_levels(found, "unknown", "low", WITHHELD)
        return msgspec.structs.replace(withheld, decide_with=f"autobrrr diagnose {measured.pid}")
    return msgspec.structs.replace(found, confidence="low", limit_confidence="low")


def _of_window(measured: Measurements) -> Verdict | None:
    window = measured.profile
    if window is None or window.verdict is None:
        return None
    verdict, longer = window.verdict, inflation(window)
    if verdict.regime in NAMES_NOBODY:  # what a file's reader could do is no use on the running job
        verdict = msgspec.structs.replace(verdict, decide_with=f"autobrrr diagnose {measured.pid} --window")
    shares, held, ahead = unprofiled(window, longer), awaited(measured.slack), host_lead(measured).against
    if ahead:  # by whole steps: the device is never through with what is queued
        held = Awaited.NOBODY
    if held is Awaited.HOST and _only_dispatch(verdict, longer):
        if longer is not None and (verdict.shares.host or 0.0) * longer > thresholds.EXCLUDED_AT:
            verdict = _regime_left(verdict, shares, longer, measured.pid)
        return _sure(verdict, IDLES)
    if longer is not None and {verdict.regime, verdict.limit} & {*HOST_MADE}:
        verdict = _limit_left(_regime_left(verdict, shares, longer, measured.pid), shares, longer)
    if held is None:
        return verdict
    denied = _denied(verdict, shares, (*NOT_LIMITING.get(held, ()), *ahead))
    if denied is not None:
        why = f"{denied} in the profiled steps, but in plain ones the device does not wait for that"
        found, again = (
            _both_levels(verdict, "unknown", "low", why),
            f"autobrrr diagnose {measured.pid} --window",
        )
        return msgspec.structs.replace(found, shares=shares, decide_with=again)
    return _beside_plain_steps(verdict, shares, held)


def _behind_ranks(verdict: Verdict, measured: Measurements) -> Verdict:
    """The device waits for a host that waits for other ranks: a collective on the CPU looks like Python."""
    waited, sleeps = collective_wait(measured), blocked_thread(measured)
    named = waited.says == sleeps.says == "communication"
    if waited.abstained:
        ranked = measured.facts is not None and measured.facts.has_other_ranks
        if not ranked or (verdict.shares.host or 0.0) <= thresholds.EXCLUDED_AT:
            return verdict
        why = (
            "the device waits for Python of this rank, which may itself be waiting for other ranks: "
            f"{waited.detail}"
        )
    elif (waited.value or 0.0) <= thresholds.EXCLUDED_AT:
        return verdict
    else:
        why = f"the device waits for the host, and the host for other ranks: {waited.note}"
    confidence: Confidence = "high" if named and waited.firm and sleeps.firm else "low"
    return _both_levels(verdict, "communication" if named else "unknown", confidence, why)


def _by_both_clocks(verdict: Verdict, measured: Measurements) -> Verdict:
    """Collectives that stand alone on the timeline, where events around the calls show the same."""
    waited = collective_wait(measured)
    if waited.says != "communication" or verdict.regime not in NAMES_NOBODY:
        return verdict
    return msgspec.structs.replace(
        verdict,
        regime="communication",
        confidence="high" if waited.firm and verdict.limit_confidence == "high" else "low",
        reason=f"{verdict.limit_reason}; {waited.note}",
    )


def _only_dispatch(verdict: Verdict, longer: float | None) -> bool:
    """Whether the host's own code is all that a device that waits for the host can be waiting for.

    Waits for data and waits that the script asks for are not made longer by the profiler: they are so much
    more of a plain step.
    """
    shares = measured_shares(verdict.shares)
    rivals = sum(shares.get(name, 0.0) for name in (*HOST_MADE, "communication") if name not in DISPATCH)
    return verdict.limit == "host" and rivals * max(1.0, longer or 1.0) <= thresholds.EXCLUDED_AT


def _sure(verdict: Verdict, why: str) -> Verdict:
    reason = f"{verdict.limit_reason}; {why}" if verdict.limit_reason else why
    return msgspec.structs.replace(verdict, limit_confidence="high", limit_reason=reason)


def _denied(verdict: Verdict, shares: Shares, excluded: Collection[str]) -> str | None:
    """What of a verdict plain steps deny: its regime, or its limit where less than half of a step is left."""
    if verdict.regime in excluded:
        return verdict.regime
    of_limit = {
        name: share
        for name, share in measured_shares(shares).items()
        if LIMIT_OF_REGIME.get(name) == verdict.limit
    }
    left = sum(share for name, share in of_limit.items() if name not in excluded)
    if left >= thresholds.NAMED_AT or of_limit.keys().isdisjoint(excluded):
        return None
    return f"limited by {verdict.limit}"


def _both_levels(
    verdict: Verdict, name: Literal["communication", "unknown"], confidence: Confidence, why: str
) -> Verdict:
    return msgspec.structs.replace(
        verdict,
        regime=name,
        confidence=confidence,
        reason=why,
        limit=name,
        limit_confidence=confidence,
        limit_reason=why,
    )


def _beside_plain_steps(verdict: Verdict, shares: Shares, held: Awaited) -> Verdict:
    """The verdict of profiled steps, where plain ones make its limit more or less sure."""
    idles = held in (Awaited.HOST, Awaited.OTHERS)
    if (verdict.limit == "input" and idles) or (verdict.limit == "sync" and held is Awaited.HOST):
        return _sure(verdict, IDLES)
    if verdict.limit == "kernels":
        return msgspec.structs.replace(verdict, limit_confidence="low") if idles else _sure(verdict, BUSY)
    kernels = sum(measured_shares(shares).get(name, 0.0) for name in KERNELS)
    if verdict.limit in NAMES_NOBODY and held is Awaited.NOBODY and kernels >= thresholds.LIMIT_AT:
        why = f"{of_one(kernels)} of a plain step is kernels, {BUSY}"
        return msgspec.structs.replace(verdict, limit="kernels", limit_confidence="low", limit_reason=why)
    return verdict


def _regime_left(verdict: Verdict, shares: Shares, longer: float, pid: int) -> Verdict:
    """The regime, if a plain step would have it too."""
    if verdict.regime not in HOST_MADE:
        return verdict
    left, seen = getattr(shares, verdict.regime), getattr(verdict.shares, verdict.regime)
    if left is None or left >= thresholds.NAMED_AT:
        return msgspec.structs.replace(verdict, shares=shares)
    return msgspec.structs.replace(
        verdict,
        regime="unknown",
        confidence="low",
        shares=shares,
        reason=(
            f"{verdict.regime} in the profiled steps, but the profiler made them {longer:.2f}x as long: "
            f"between {of_one(left)} and {of_one(seen or 0.0)} of a plain one"
        ),
        decide_with=f"autobrrr tune {pid}",
    )


def _limit_left(verdict: Verdict, shares: Shares, longer: float) -> Verdict:
    """Who limits the step, if a plain step would be limited so too."""
    if verdict.limit not in HOST_MADE:
        return verdict
    left = sum(
        share for name, share in measured_shares(shares).items() if LIMIT_OF_REGIME.get(name) == verdict.limit
    )
    if left >= thresholds.NAMED_AT:
        return verdict
    return msgspec.structs.replace(
        verdict,
        limit="unknown",
        limit_confidence="low",
        limit_reason=(
            f"limited by {verdict.limit} in the profiled steps, but the profiler made them {longer:.2f}x as "
            f"long: {of_one(left)} of a plain one at least"
        ),
    )


def unprofiled(window: ProfilerWindow, longer: float | None) -> Shares:
    """Shares of a plain step, if all that the profiler added lay where the device waits for the host."""
    if window.verdict is None:
        return Shares()
    shares = {
        name: share
        for name, share in msgspec.structs.asdict(window.verdict.shares).items()
        if share is not None
    }
    waits = sum(shares.get(name, 0.0) for name in HOST_MADE)
    if longer is None or longer <= 1 or waits <= 0:
        return window.verdict.shares
    added = 1 - 1 / longer  # of the profiled step
    kept = max(0.0, waits - added) / waits
    scaled = {name: share * (kept if name in HOST_MADE else 1.0) for name, share in shares.items()}
    total = sum(scaled.values())
    return Shares(**{name: share / total for name, share in scaled.items()}) if total > 0 else Shares()
