"""What a study has found: its trials one by one, and at the end the result and the recipe.

In: results of points, the confirmed interval of the winner.
Out: `Trial`s, a `Tuning`, a `Recipe` with its evidence.
"""

from __future__ import annotations

import glob
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from autobrrr.quantities import share, size
from autobrrr.recipe import Match, Measured, Recipe, measured_on
from autobrrr.records import JobFacts, Reverted, Trial, Tuning
from autobrrr.relaunch.search.search_space import Point, Result, Space
from autobrrr.relaunch.study.timed_turns import Duel
from autobrrr.relaunch.trial.trial_endings import TrialEnding
from autobrrr.tuner.confidence_sequence import Interval


@dataclass(slots=True, kw_only=True)
class Baseline:
    """The command as given, as far as it has been measured.

    Attributes:
        samples: Of one step; None where they are not seen.
        tokens: Of one step; at the end only where they are what counts.
    """

    step_ns: float | None = None
    samples: int | None = None
    tokens: float | None = None
    facts: JobFacts | None = None
    script: str | None = None

    @property
    def objective(self) -> Literal["step_ns", "samples_per_s", "tokens_per_s"]:
        if self.step_ns is None or not (self.tokens or self.samples):
            return "step_ns"
        return "tokens_per_s" if self.tokens else "samples_per_s"

    def figure(self, speedup: float = 1.0) -> float | None:
        """Tokens or samples a second, or nanoseconds a step, at so many times the baseline's speed."""
        if self.step_ns is None:
            return None
        if counted := self.tokens or self.samples:
            return counted / (self.step_ns / 1e9) * speedup
        return self.step_ns / speedup


def judged(point: Point, met: Duel | None, ending: TrialEnding | None, reserved: int | None) -> Result:
    """What a candidate's trial came to.

    Args:
        met: How it did against the baseline; None: it did not come to that.
        ending: How it ended; None: it did not.
        reserved: Bytes of the GPU that the baseline held meanwhile.
    """
    found = None if met is None else met.interval
    if met is not None and found is not None and (ending is None or ending.is_orderly):
        why = found.words
        if met.pruned and found.high > 0:
            why += ", no better than the best so far"
        if met.lost:
            why += f", with {share(math.expm1(met.lost))} from occasional long steps"
        measured = Result(point=point, value=found.mean, kind="measured", why=why, low=found.low)
        return replace(measured, high=found.high, pairs=len(met.values), steps=met.steps)
    if ending is None:
        return Result(point=point, value=None, kind="too_short", why="too few steps to measure")
    if ending.kind == "oom" and reserved:
        held = f"the suspended baseline holds {size(reserved)} of the GPU"
        ending = replace(ending, why=f"{ending.why} ({held})")
    why, last = ending.why, ending.lines[-1].strip() if ending.lines else ""
    if last not in why:
        why += f"; last line: {last}"
    return Result(point=point, value=None, kind=ending.kind, why=why)


def trial_of(space: Space, result: Result, kept: Point | None = None) -> Trial:
    """A trial that has ended, as users see it.

    Args:
        kept: The point that was proven; None: that is not known yet.
    """
    kind = result.kind if result.value is None else ""
    bounds = (result.value, result.low, result.high)
    value, low, high = (None if each is None else math.exp(min(each, 50.0)) for each in bounds)
    measured: Literal["kept", "undone"] = "kept" if result.point == kept else "undone"
    return Trial(
        remedy=space.label(result.point),
        options=space.settings(result.point),
        outcome="refused" if value is None else measured,
        why=": ".join(part for part in (kind, result.why, result.origin) if part),
        class_=space.cls(result.point),
        predicted=None,
        achieved=None if value is None else round(value, 4),
        interval=None if low is None or high is None else [low, high],
        blocks=2 * result.pairs,
        steps=result.steps,
        duration_ns=result.duration_ns,
        memory_bytes=result.memory_bytes,
        predicted_memory_bytes=result.predicted_memory_bytes,
    )


def conclude(
    space: Space,
    base: Baseline,
    results: Sequence[Result],
    winner: Point,
    found: Interval | None,
    *,
    notes: Sequence[str],
) -> tuple[Tuning, Recipe | None]:
    """The result of the study.

    Args:
        winner: What was proven; the command as given where nothing was.
        found: Its gain over the command as given, from fresh starts.
    """
    if base.tokens is None and (resized := space.resized(winner)):
        says = "may change how long a sample is: samples are counted, not tokens"
        notes = [*notes, f"{', '.join(resized)} {says}"]
    if drawn := space.redrawn(winner):
        notes = [*notes, f"{', '.join(drawn)}: stream, in case the dataset draws random numbers"]
    speedup = 1.0 if found is None else found.factor
    trials = [trial_of(space, each, winner) for each in results]
    tuning = Tuning(
        objective=base.objective,
        baseline=base.figure(),
        best=base.figure(speedup),
        speedup=speedup,
        interval=None if found is None else found.speed(),
        class_=space.cls(winner),
        kept=space.kept(winner),
        reverted=[Reverted(remedy=each.remedy, why=each.why) for each in trials if each.outcome == "undone"],
        trials=trials,
        recipe=None,
        note="; ".join(dict.fromkeys(notes)) or None,
        job=base.facts,
    )
    return tuning, None if found is None else _recipe(space, base, winner, found)


def _recipe(space: Space, base: Baseline, winner: Point, found: Interval) -> Recipe:
    low, high = found.speed()
    device = None if base.facts is None else base.facts.recipe_device
    # A step may hold something else: then its time says nothing of the speed.
    refilled = space.told_ratio(winner, space.base) != 1.0
    return replace(
        space.recipe(winner),
        numerics=space.cls(winner),
        match=Match(script=base.script and glob.escape(base.script), device=device),
        evidence=Measured(
            speedup=found.factor,
            interval=(low, high),
            baseline_ns=base.step_ns,
            best_ns=None if base.step_ns is None or refilled else base.step_ns / found.factor,
            measured_on=measured_on(base.facts),
        ),
    )
