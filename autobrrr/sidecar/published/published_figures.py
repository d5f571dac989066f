"""The figures of a session that other programs are told, under names that stay.

In: a snapshot and the last tuning. Out: figures; what is not measured is left out, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from autobrrr.readable import readable
from autobrrr.records import Diagnosis, Limit, Regime, Tuning

MOST_LABEL = 200
Label = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: `name` and `unit` make its name elsewhere, `labels` tell it from its like."""

    name: str
    value: float
    help: str
    unit: Literal["seconds", "ratio", "total", ""] = ""
    labels: tuple[Label, ...] = ()

    @property
    def path(self) -> str:
        """`step_seconds`, `share_ratio/overhead`: for who has no labels."""
        name = f"{self.name}_{self.unit}" if self.unit else self.name
        return "/".join([name, *(value for _, value in self.labels)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Everything at one moment."""

    steps: int
    figures: tuple[Figure, ...]
    job: tuple[Label, ...]  # of all figures: whose they are
    verdict: str


def published(found: Diagnosis, tuned: Tuning | None) -> Published:
    """What is told of a session now."""
    script = "" if found.job is None else readable(found.job.script, MOST_LABEL)
    rank = "" if found.job is None or found.job.rank is None else str(found.job.rank)
    return Published(
        steps=found.steps or 0,
        figures=tuple(_figures(found, tuned)),
        job=(("pid", str(found.pid)), ("script", script), ("rank", rank)),
        verdict=f"{found.limit} ({found.limit_confidence}); {found.regime} ({found.confidence})",
    )


def _figures(found: Diagnosis, tuned: Tuning | None) -> Iterator[Figure]:
    median_ns = found.step_ns.median
    yield from _one("step", median_ns, "median step", scale=1e-9, unit="seconds")
    yield from _one("step_p99", found.step_ns.p99, "99th percentile of steps", scale=1e-9, unit="seconds")
    yield from _one("steps", found.steps, "steps since attach", unit="total")
    if median_ns and found.batch_probe.batch:
        rate = found.batch_probe.batch * 1e9 / median_ns
        yield Figure(name="samples_per_second", value=rate, help="samples that a second trains")
    for part, share in msgspec.structs.asdict(found.shares).items():
        yield from _one("share", share, "part of the step", unit="ratio", labels=(("part", part),))
    for phase, ns in msgspec.structs.asdict(found.phases_ns).items():
        labels = (("phase", phase),)
        yield from _one(
            "phase", ns, "mean time in a phase of the step", scale=1e-9, unit="seconds", labels=labels
        )
    for regime in get_args(Regime):
        yield Figure(
            name="regime", value=regime == found.regime, help="1: the regime", labels=(("regime", regime),)
        )
    for limit in get_args(Limit):
        yield Figure(
            name="limit", value=limit == found.limit, help="1: who limits", labels=(("limit", limit),)
        )
    sure = found.confidence == "high" or found.limit_confidence == "high"
    yield Figure(name="confident", value=sure, help="1: limit or regime is sure")
    if tuned is not None and set(tuned.kept) <= set(found.active):  # else what has gained is no longer on
        yield from _gain(tuned)
    yield Figure(name="remedies_on", value=len(found.active), help="remedies that are on")
    yield from _one("own_cost", found.cost.share, "what autobrrr itself costs in each step", unit="ratio")
    pauses = found.cost.one_off_ns
    yield from _one("own_pauses", pauses, "all pauses that measuring caused", scale=1e-9, unit="seconds")
    delay = None if found.host is None else found.host.run_delay_share
    yield from _one("cpu_wait", delay, "time that the training thread waits for a CPU", unit="ratio")


def _gain(tuned: Tuning) -> Iterator[Figure]:
    if tuned.interval is None:
        return
    low, high = tuned.interval
    for bound, value in (("estimate", tuned.speedup), ("low", low), ("high", high)):
        yield Figure(
            name="gain", value=value, help="proven speed-up", unit="ratio", labels=(("bound", bound),)
        )


def _one(
    name: str,
    value: float | None,
    help_: str,
    *,
    scale: float = 1.0,
    unit: Literal["seconds", "ratio", "total", ""] = "",
    labels: tuple[Label, ...] = (),
) -> Iterator[Figure]:
    if value is not None:
        yield Figure(name=name, value=value * scale, help=help_, unit=unit, labels=labels)
