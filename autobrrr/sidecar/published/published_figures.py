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
Unit = Literal["seconds", "ratio", "total", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: `name` and `unit` make its name elsewhere, `labels` tell it from its like."""

    name: str
    value: float
    help: str
    unit: Unit = ""
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Everything at one moment."""

    figures: tuple[Figure, ...]
    job: tuple[Label, ...]  # of all figures: whose they are


def published(found: Diagnosis, tuned: Tuning | None) -> Published:
    """What is told of a session now."""
    script = "" if found.job is None else readable(found.job.script, MOST_LABEL)
    rank = "" if found.job is None or found.job.rank is None else str(found.job.rank)
    return Published(
        figures=tuple(
            Figure(
                name=name,
                value=value / 1e9 if unit == "seconds" else value,
                help=help_,
                unit=unit,
                labels=labels,
            )
            for name, unit, labels, value, help_ in _figures(found, tuned)
            if value is not None
        ),
        job=(("pid", str(found.pid)), ("script", script), ("rank", rank)),
    )


def _figures(
    found: Diagnosis, tuned: Tuning | None
) -> Iterator[tuple[str, Unit, tuple[Label, ...], float | None, str]]:
    """Name, unit, labels, value and what it is; times in ns."""
    median_ns, batch = found.step_ns.median, found.batch_probe.batch
    rate = batch * 1e9 / median_ns if median_ns and batch else None
    yield "step", "seconds", (), median_ns, "median step"
    yield "step_p99", "seconds", (), found.step_ns.p99, "99th percentile of steps"
    yield "steps", "total", (), found.steps, "steps since attach"
    yield "samples_per_second", "", (), rate, "samples that a second trains"
    for part, share in msgspec.structs.asdict(found.shares).items():
        yield "share", "ratio", (("part", part),), share, "part of the step"
    for phase, ns in msgspec.structs.asdict(found.phases_ns).items():
        yield "phase", "seconds", (("phase", phase),), ns, "mean time in a phase of the step"
    for regime in get_args(Regime):
        yield "regime", "", (("regime", regime),), regime == found.regime, "1: the regime"
    for limit in get_args(Limit):
        yield "limit", "", (("limit", limit),), limit == found.limit, "1: who limits"
    sure = found.confidence == "high" or found.limit_confidence == "high"
    yield "confident", "", (), sure, "1: limit or regime is sure"
    # Else what has gained is no longer on.
    if tuned is not None and tuned.interval is not None and set(tuned.kept) <= set(found.active):
        low, high = tuned.interval
        for bound, gain in (("estimate", tuned.speedup), ("low", low), ("high", high)):
            yield "gain", "ratio", (("bound", bound),), gain, "proven speed-up"
    delay = None if found.host is None else found.host.run_delay_share
    yield "remedies_on", "", (), len(found.active), "remedies that are on"
    yield "own_cost", "ratio", (), found.cost.share, "what autobrrr itself costs in each step"
    yield "own_pauses", "seconds", (), found.cost.one_off_ns, "all pauses that measuring caused"
    yield "cpu_wait", "ratio", (), delay, "time that the training thread waits for a CPU"
