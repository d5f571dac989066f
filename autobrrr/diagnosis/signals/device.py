"""Who waits for whom, host or device, and what its driver shows.

Signal `host_lead`: how often the host came to a step's end while the device was still in an earlier step.

Asked of the device's own events, so no clock is read. A host that is a whole step ahead can't be what the
device waits for. The other way round is no proof: where a step holds more launches than a queue, or reads
the loss, a host is never so far ahead.

Signal `host_slack`: whether the device waits where the host is held up on purpose, in a few steps.

Held up between two steps and before the backward: a device that has work queued at both does not wait for
dispatch, though it may for something in between; one that idles at both waits for the host, or just after
waits that the script asks for. A step that gets no longer although the device idles waits for somebody else,
as for a loader's workers.

Signal `nvml`: what the GPU's driver shows from outside. It names nothing.

GPU-Util says that some kernel ran, not how much of the device it filled. What counts here is what makes
other figures wrong or slow: a clock that is held down, another process on the same device.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from statistics import fmean, stdev

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import median, of_one, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import GpuSample, HostHold, HostSlack, Regime

BUSY_AT, IDLE_AT = 0.3, 0.7  # of a hold that the device idles
LEAST_HOLDS = 3  # at one place
GROWS_AT, GROWTH_ERROR = 0.3, 0.15  # of a hold, by which a step gets longer; standard error
PLACES = {"step": "between two steps", "backward": "before the backward"}
OFTEN = 0.25  # of the samples: a reason that comes less often is left out
COUNTERS = (
    ("sm_active_share", "SMs at work"),
    ("tensor_active_share", "tensor cores"),
    ("dram_active_share", "memory bandwidth"),
)


ALWAYS = 0.9


def host_lead(measured: Measurements) -> Reading:
    """Against all that is the host's doing, where the host is ahead nearly always."""
    steps = len(measured.ahead)
    if not steps:
        return abstention(
            "host_lead", "share of steps", "no step was stamped by a device that works asynchronously"
        )
    share = float(measured.ahead.mean())
    if steps < thresholds.SAMPLED_STEPS:
        return abstention(
            "host_lead", "share of steps", f"{steps} of {thresholds.SAMPLED_STEPS} stamped steps", share
        )
    against: tuple[Regime, ...] = ("overhead", "input", "host") if share >= ALWAYS else ()
    return Reading(
        signal="host_lead",
        value=share,
        unit="share of steps",
        note=f"the host was a step or more ahead of the device in {of_one(share)} of {steps} steps",
        against=against,
    )


class Awaited(Enum):
    """For whom the device waits where the host is held up."""

    HOST = "host"  # at all places
    NOBODY = "nobody"  # it has work queued at all places
    OTHERS = "others"  # it idles, and a step in which the host is held up gets no longer


NOT_LIMITING: Mapping[Awaited | None, tuple[Regime, ...]] = {
    Awaited.NOBODY: ("overhead",),
    Awaited.OTHERS: ("overhead", "host"),
}


def host_slack(measured: Measurements) -> Reading:
    """Against dispatch, and the job's own code, where the device does not wait for them."""
    slack = measured.slack
    if slack is None:
        return abstention("host_slack", "share of holds", "not measured: it needs a GPU, and no --no-probe")
    if slack.status != "ok":
        return abstention("host_slack", "share of holds", slack.why or "it gave no reason")
    idle = idle_by_place(slack.holds)
    if not idle:
        return abstention("host_slack", "share of holds", f"fewer than {LEAST_HOLDS} holds at one place")
    who = awaited(slack)
    places = " and ".join(f"{of_one(share)} of the holds {PLACES[place]}" for place, share in idle.items())
    longer = ", and yet steps get no longer" if who is Awaited.OTHERS else ""
    return Reading(
        signal="host_slack",
        value=max(idle.values()) if who is Awaited.NOBODY else min(idle.values()),
        unit="share of holds",
        note=f"the device had nothing to do in {places}{longer}",
        against=NOT_LIMITING.get(who, ()),
        firm=who is not None,
    )


def awaited(slack: HostSlack | None) -> Awaited | None:
    """For whom the device waits; None where it was not measured, or differs from place to place."""
    idle = idle_by_place(slack.holds) if slack is not None else {}
    if not slack or not idle:
        return None
    if max(idle.values()) <= BUSY_AT:
        return Awaited.NOBODY
    if min(idle.values()) < IDLE_AT:
        return None
    return Awaited.OTHERS if no_longer(slack.holds) else Awaited.HOST


def idle_by_place(holds: list[HostHold]) -> dict[str, float]:
    """The median share of a hold that the device idled, where there were enough of them; 0 to 1."""
    by_place: dict[str, list[float]] = {}
    for hold in holds:
        if hold.held_ns > 0:
            by_place.setdefault(hold.place, []).append(min(1.0, hold.idle_ns / hold.held_ns))
    return {
        place: statistics.median(shares) for place, shares in by_place.items() if len(shares) >= LEAST_HOLDS
    }


def no_longer(holds: list[HostHold]) -> bool:
    """Whether steps are as long as those beside them, for sure, though the host was held up before them."""
    growths = [
        (hold.step_ns - fmean(hold.beside_ns)) / hold.held_ns
        for hold in holds
        if hold.held_ns > 0 and hold.place == "step"
    ]
    if len(growths) < LEAST_HOLDS:
        return False
    return fmean(growths) <= GROWS_AT and stdev(growths) / len(growths) ** 0.5 <= GROWTH_ERROR


def nvml(measured: Measurements) -> Reading:
    """Medians of the last ten seconds, with what disturbs the device."""
    samples = measured.gpu
    if not samples:
        return abstention("nvml", "share of wall time", "no driver of a GPU that this job uses gave a figure")
    util = _median(samples, "gpu_util_share")
    words = [] if util is None else [f"GPU-Util {of_one(util)}, which says only that some kernel ran"]
    words += [
        f"{of_one(share)} {said}" for name, said in COUNTERS if (share := _median(samples, name)) is not None
    ]
    words += [*_held_down(samples), *_shared(samples[-1])]
    if not words:
        return abstention("nvml", "share of wall time", "the GPU's driver tells nothing of its work")
    return Reading(signal="nvml", value=util, unit="share of wall time", note="; ".join(words))


def _held_down(samples: Sequence[GpuSample]) -> list[str]:
    reasons = Counter(reason for sample in samples for reason in set(sample.throttled_by or ()))
    often = [(reason, count) for reason, count in reasons.most_common() if count >= OFTEN * len(samples)]
    if not often:
        return []
    listed = ", ".join(f"{reason} in {of_one(count / len(samples))} of the looks" for reason, count in often)
    last = samples[-1]
    clock = ""
    if last.sm_clock_mhz is not None and last.sm_clock_max_mhz:
        clock = f", now at {last.sm_clock_mhz} of {last.sm_clock_max_mhz} MHz"
    return [f"its clock is held down ({listed}{clock})"]


def _shared(last: GpuSample) -> list[str]:
    others = last.other_processes or 0
    if others < 1:
        return []
    return [f"{others} other process{'es' * (others > 1)} compute{'s' * (others == 1)} on it"]


def _median(samples: Sequence[GpuSample], name: str) -> float | None:
    known = [share for sample in samples if (share := unit_share(getattr(sample, name))) is not None]
    return median(known)
