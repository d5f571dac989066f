"""The verdict on a GPU job: that of its profiler window's timeline, scaled to unprofiled steps.

The trace is judged by `trace.verdict`, with the same words and rules, by two independent signals.
The profiler holds the host up, so all that it adds is taken off the time in which the device
waits: what is left of overhead is a lower bound.
"""

from __future__ import annotations

import msgspec

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import measured_shares
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signal_reading import Reading
from autobrrr.diagnosis.signals.profiler_window_signal import inflation
from autobrrr.records import LIMIT_OF_REGIME, ProfilerWindow, Shares, Verdict

HOST_MADE = ("overhead", "host", "input", "sync")  # what grows where the host is held up


def device_verdict(measured: Measurements, busy: Reading) -> Verdict | None:
    """The verdict of the last window; None where it saw no device.

    Args:
        busy: How long the training thread was ready and had no CPU: what the device waits for then is
            no doing of the job.
    """
    found = _of_window(measured)
    delay = busy.value or 0.0
    if found is None or delay < thresholds.BUSY_AT:
        return found
    if delay >= thresholds.WITHHELD_AT and {found.regime, found.limit} & {*HOST_MADE}:
        withheld = f"machine busy, verdict withheld: {busy.detail}"
        return msgspec.structs.replace(
            found,
            regime="unknown",
            confidence="low",
            reason=withheld,
            limit="unknown",
            limit_confidence="low",
            limit_reason=withheld,
            decide_with=f"autobrrr diagnose {measured.pid} --for 60s",
        )
    return msgspec.structs.replace(found, confidence="low", limit_confidence="low")


def _of_window(measured: Measurements) -> Verdict | None:
    window = measured.profile
    if window is None or window.verdict is None:
        return None
    verdict, longer = window.verdict, inflation(window)
    if verdict.decide_with is not None:  # what a file's reader could do is no use on the running job
        verdict = msgspec.structs.replace(verdict, decide_with=f"autobrrr diagnose {measured.pid} --window")
    shares = unprofiled(window, longer)
    if longer is None or not {verdict.regime, verdict.limit} & {*HOST_MADE}:
        return verdict
    return _limit_left(_regime_left(verdict, shares, longer, measured.pid), shares, longer)


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
