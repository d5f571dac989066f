"""Signal `host_slack`: whether the device waits where the host is held up on purpose, in a few steps.

Held up between two steps and before the backward: a device that has work queued at both does not wait for
dispatch, though it may for something in between; one that idles at both waits for the host, or just after
waits that the script asks for. A step that gets no longer although the device idles waits for somebody else,
as for a loader's workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from statistics import fmean, median, stdev

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import HostHold, HostSlack, Regime

NAME = "host_slack"
UNIT = "share of holds"
BUSY_AT, IDLE_AT = 0.3, 0.7  # of a hold that the device idles
LEAST_HOLDS = 3  # at one place
GROWS_AT, GROWTH_ERROR = 0.3, 0.15  # of a hold, by which a step gets longer; standard error
PLACES = {"step": "between two steps", "backward": "before the backward"}


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
        return abstention(NAME, UNIT, "not measured: it needs a GPU, and no --no-probe")
    if slack.status != "ok":
        return abstention(NAME, UNIT, slack.why or "it gave no reason")
    idle = idle_by_place(slack.holds)
    if not idle:
        return abstention(NAME, UNIT, f"fewer than {LEAST_HOLDS} holds at one place")
    who = awaited(slack)
    places = " and ".join(f"{of_one(share)} of the holds {PLACES[place]}" for place, share in idle.items())
    longer = ", and yet steps get no longer" if who is Awaited.OTHERS else ""
    return Reading(
        signal=NAME,
        value=max(idle.values()) if who is Awaited.NOBODY else min(idle.values()),
        unit=UNIT,
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
    return {place: median(shares) for place, shares in by_place.items() if len(shares) >= LEAST_HOLDS}


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
