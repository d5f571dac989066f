"""The same steps on all ranks of a job, side by side.

In: each rank's timed steps. Ranks leave a step's collectives together, so that steps are matched by that
moment, on the machine's clock. Out: arrays of shape [ranks, steps]; None where too few steps match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autobrrr.diagnosis import thresholds
from autobrrr.records import CollectiveWaits

Times = NDArray[np.float64]
PHASES = ("data_wait", "forward", "backward", "optimizer", "other")
_NEAR = 0.25  # of the median step: so far apart the ends of one step's collectives may be


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """Shapes are [ranks, steps]; own is without collectives."""

    step_ns: Times
    own_ns: Times
    waits_ns: Times
    delay_ns: Times
    garbage_ns: Times
    samples: Times
    tokens: Times
    reduced: Times
    by_phase_ns: dict[str, Times]  # those that all ranks have measured

    @property
    def usual_step_ns(self) -> float:
        """Median over steps and ranks."""
        return float(np.median(self.step_ns))


def same_steps(ranks: Sequence[CollectiveWaits]) -> RankSteps | None:
    """The steps that all of these ranks have timed; None where they are too few, or times are absurd."""
    if len(ranks) < 2 or not all(_is_whole(each) for each in ranks):
        return None
    try:
        usual_ns = float(np.median([took_ns for each in ranks for took_ns in each.step_ns]))
        chosen = _matched([_left_ns(each) for each in ranks], usual_ns)
        if chosen.shape[1] < thresholds.COMPARED_STEPS:
            return None
        step_ns = _rows([each.step_ns for each in ranks], chosen)
        waits_ns = _rows([each.exposed_ns for each in ranks], chosen)
        names = [name for name in PHASES if all(name in each.own_by_phase_ns for each in ranks)]
        return RankSteps(
            step_ns=step_ns,
            own_ns=step_ns - waits_ns,
            waits_ns=waits_ns,
            delay_ns=_rows([each.delay_ns for each in ranks], chosen),
            garbage_ns=_rows([each.garbage_ns for each in ranks], chosen),
            samples=_rows([each.samples for each in ranks], chosen),
            tokens=_rows([each.tokens for each in ranks], chosen),
            reduced=_rows([each.reduced for each in ranks], chosen),
            by_phase_ns={
                name: _rows([each.own_by_phase_ns[name] for each in ranks], chosen) for name in names
            },
        )
    except OverflowError:  # whole numbers that no clock shows
        return None


def usual_phases(timed: CollectiveWaits) -> dict[str, int]:
    """Medians of one rank's own time by phase."""
    own = timed.own_by_phase_ns
    return {name: int(median(own[name])) for name in PHASES if own.get(name)}


def _is_whole(timed: CollectiveWaits) -> bool:
    columns = (
        timed.step_ns,
        timed.exposed_ns,
        timed.delay_ns,
        timed.garbage_ns,
        timed.samples,
        timed.tokens,
        timed.reduced,
    )
    every = (*columns, *timed.own_by_phase_ns.values())
    return (
        timed.status == "ok"
        and len(timed.end_ns) > 0
        and {len(each) for each in every} == {len(timed.end_ns)}
    )


def _left_ns(timed: CollectiveWaits) -> Times:
    """When each step's collectives were left: the update of the weights follows on them."""
    ends = np.asarray(timed.end_ns, dtype=np.float64)
    update = timed.own_by_phase_ns.get("optimizer")
    return ends if update is None else ends - np.asarray(update, dtype=np.float64)


def _matched(left: Sequence[Times], usual_ns: float) -> NDArray[np.intp]:
    """Indices of the same steps, shape [ranks, steps]."""
    first = left[0]
    rows = [np.arange(len(first))]
    fits = np.ones(len(first), dtype=np.bool_)
    for other in left[1:]:
        after = np.clip(np.searchsorted(other, first), 0, len(other) - 1)
        before = np.maximum(after - 1, 0)
        nearest = np.where(np.abs(other[before] - first) < np.abs(other[after] - first), before, after)
        apart = other[nearest] - first  # all alike where the update is not measured, and differs
        fits &= np.abs(apart - np.median(apart)) <= _NEAR * usual_ns
        rows.append(nearest)
    return np.stack(rows)[:, fits]


def _rows(columns: Sequence[Sequence[int]], chosen: NDArray[np.intp]) -> Times:
    return np.stack(
        [np.asarray(column, dtype=np.float64)[index] for column, index in zip(columns, chosen, strict=True)]
    )
