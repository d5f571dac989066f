"""A phase that something else than dispatch holds: too few operators for the time in which no kernel works.

In: the traced steps, the calibrated cost of an operator, sampled stacks. Out: which phase is held, where
the thread stands in it, and whether it sleeps or runs there. None where no phase by itself has half of the
overhead beyond its operators, times what dispatching one costs at least: operators that cost more than the
least are dearer in every phase, and are dispatch all the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.sampled_frames import placed
from autobrrr.diagnosis.models.shares import MODEL_PHASES, overhead_share, step_parts
from autobrrr.diagnosis.robust_stats import of_one, positive

SLEEPS_AT = 0.5  # of the looks that could tell


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPhase:
    """Shares are of the step."""

    phase: str
    explained: float  # by operators and what dispatching one costs
    operations: float
    where: str | None = None  # "train.py:31 backward"; None: no stack sampled in it
    standing: float = 0.0  # of the sampled stacks, those that stand in this function
    samples: int = 0
    asleep: bool | None = None  # None: not known

    def told(self) -> str:
        """The end of a sentence about the step's overhead."""
        state = {True: ", where the thread sleeps", False: ", where it runs", None: ""}[self.asleep]
        place = f", most at {self.where}{state}" if self.where else ""
        return (
            f"Python inside {self.phase}, not dispatch: {self.operations:.0f} operators explain "
            f"{of_one(self.explained)} of the step{place}"
        )


def held_phase(measured: Measurements) -> HeldPhase | None:
    """The phase with most time that no kernel and no dispatch explains."""
    traced, parts = measured.traced, step_parts(measured)
    overhead = None if parts is None else overhead_share(measured, parts)
    cost_ns = None if traced is None else positive(traced.op_cost_ns)
    if traced is None or parts is None or overhead is None or cost_ns is None:
        return None
    if overhead < thresholds.EXCLUDED_AT or not traced.operations_by_phase:
        return None
    operations = {name: traced.operations_by_phase.get(name) or 0.0 for name in MODEL_PHASES}
    dispatch = {name: count * cost_ns / parts.step_ns for name, count in operations.items()}
    explained = sum(min(dispatch[name], parts.idle(name) or 0.0) for name in MODEL_PHASES)
    beyond = {name: (parts.idle(name) or 0.0) - dispatch[name] for name in MODEL_PHASES}
    phase = max(beyond, key=lambda name: beyond[name])
    if beyond[phase] < thresholds.EXPLAINED_AT * overhead:
        return None
    frames = measured.frames
    places = [one for one in (frames.places if frames else []) if one.phase == phase and one.samples > 0]
    counted: Counter[tuple[str, ...]] = Counter()
    for one in places:
        counted[placed(one.where)[::2]] += one.samples
    function, standing = max(counted.items(), key=lambda item: item[1], default=((), 0))
    inside = [one for one in places if placed(one.where)[::2] == function]
    looks = sum(one.stayed for one in inside)
    asleep = sum(one.asleep for one in inside) >= SLEEPS_AT * looks if looks else None
    return HeldPhase(
        phase=phase,
        explained=min(overhead, explained),
        operations=sum(operations.values()),
        where=max(inside, key=lambda one: one.samples).where if inside else None,
        standing=standing / max(1, frames.samples if frames else 0),
        samples=frames.samples if frames else 0,
        asleep=asleep,
    )
