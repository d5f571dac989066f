"""Which point comes next: every one of a small space, else the one that promises most.

In: a space, points to begin with, results. Out: points, until there is none that is worth a trial.
Optuna holds the study through ask and tell, in memory or in a journal file, from which a study that was
cut off goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autobrrr.relaunch.search import study_journal as journals
from autobrrr.relaunch.search.additive_model import expected, propose
from autobrrr.relaunch.search.search_space import Point, Result, Space

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial
    from optuna.trial import Trial as OptunaTrial

EXHAUSTIVE = 24
SHARE_OF_POINTS = 0.25
MOST_TRIALS = 40
STARTUP_TRIALS = 5
QUIET_TRIALS = 8  # without a gain, and a better one is not likely
GAIN = 0.01


class Search:
    """One study.

    Args:
        seeds: Points to try first.
        trials: At most so many; None: all of a small space, a quarter of a large one.
        journal: File of the study; None keeps it in memory. One that is finished is set aside.

    Raises:
        Busy: the journal is another run's.
        OSError: the journal can't be held or set aside.
    """

    def __init__(
        self,
        space: Space,
        *,
        seeds: Sequence[Point] = (),
        trials: int | None = None,
        journal: Path | None = None,
        seed: int = 0,
    ) -> None:
        self._space = space
        self._points = space.points()
        self.exhaustive = len(self._points) <= EXHAUSTIVE
        share = max(STARTUP_TRIALS, round(SHARE_OF_POINTS * len(self._points)))
        usual = len(self._points) if self.exhaustive else min(MOST_TRIALS, share)
        self.most = min(trials or usual, len(self._points))
        self._draw = random.Random(seed)
        self._sampler = _sampler(seed)
        self._open: dict[Point, OptunaTrial] = {}
        self.too_large: Callable[[Point], bool] = lambda point: False
        self.results: list[Result] = []
        self._hold = None if journal is None else journals.Hold(journal)
        self._study = self._begin(journal)
        self._take_up()
        first = [point for point in seeds if point in self._points]
        self._queue = list(dict.fromkeys([*first, *(self._points if self.exhaustive else ())]))

    def prefer(self, points: Sequence[Point]) -> None:
        """Try these first, in this order."""
        first = [point for point in points if point in self._points]
        self._queue = list(dict.fromkeys([*first, *self._queue]))

    def ask(self) -> Point | None:
        """The next point; None when enough were tried or no better one is likely."""
        if len(self.results) >= self.most or self._is_quiet():
            return None
        tried = {result.point for result in self.results}
        for point in self._queue:
            if point not in tried and not self._would_not_fit(point):
                return self._enqueued(point)
        if self.exhaustive:
            return None
        left = self._untried()
        return self._enqueued(propose(self._space, self.results, left, self._draw)) if left else None

    def tell(self, result: Result) -> bool:
        """Enter what became of the point that was asked for last; whether it counts."""
        self.results.append(result)
        self._write(self._open.pop(result.point), result)
        return True

    def _write(self, trial: OptunaTrial, result: Result) -> None:
        trial.set_user_attr("point", self._space.label(result.point))
        trial.set_user_attr("kind", result.kind)
        trial.set_user_attr("why", result.why)
        trial.set_user_attr("low", result.low)
        trial.set_user_attr("memory_bytes", result.memory_bytes)
        self._close(trial, result.value)

    @property
    def elsewhere(self) -> int:
        """How many trials are under way in other workers; what they find is worth waiting for."""
        return 0

    def finish(self) -> None:
        """The study is over: the same command begins a new one."""
        self._study.set_user_attr("finished", True)

    def close(self) -> None:
        """This run ends; what it has open is given up, and comes again."""
        if self._hold is not None:
            self._hold.let_go()

    @property
    def best(self) -> Result | None:
        """The point that is expected to be fastest by all results: a high mean of a wide interval is luck."""
        measured = [result for result in self.results if result.value is not None]
        if not measured:
            return None
        promise = expected(self._space, measured)
        return max(measured, key=lambda result: promise[result.point])

    def _is_quiet(self) -> bool:
        if self.exhaustive:
            return False
        values = [result.value for result in self.results if result.value is not None]
        if len(values) < STARTUP_TRIALS + QUIET_TRIALS:
            return False
        earlier = max(0.0, *values[:-QUIET_TRIALS])
        if max(values[-QUIET_TRIALS:]) >= earlier + GAIN:
            return False
        best = self._space.base if self.best is None else self.best.point
        return all(self._distance(point, best) > 1 for point in self._untried())

    def _untried(self) -> list[Point]:
        tried = {result.point for result in self.results}
        return [each for each in self._points if each not in tried and not self._would_not_fit(each)]

    def _distance(self, one: Point, other: Point) -> int:
        """Levels between two points; two choices without an order are one apart."""
        return sum(
            abs(mine - its) if parameter.ordered else int(mine != its)
            for mine, its, parameter in zip(one, other, self._space.parameters, strict=True)
        )

    def _would_not_fit(self, point: Point) -> bool:
        """A batch at least as large as one that ran out of memory, or that is expected to."""
        if self.too_large(point):
            return True
        batch = self._space.batch_of(point)
        failed = [
            size
            for result in self.results
            if result.kind == "oom" and (size := self._space.batch_of(result.point)) is not None
        ]
        return batch is not None and bool(failed) and batch >= min(failed)

    def _enqueued(self, point: Point) -> Point:
        names = [parameter.name for parameter in self._space.parameters]
        self._study.enqueue_trial(dict(zip(names, point, strict=True)))
        self._open[point] = self._study.ask(distributions(self._space))
        return point

    def _tell_base(self) -> None:
        base = self._space.base
        self._enqueued(base)
        trial = self._open.pop(base)
        trial.set_user_attr("point", "as given")
        self._close(trial, 0.0)

    def _close(self, trial: OptunaTrial, value: float | None) -> None:
        from optuna.trial import TrialState

        if value is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, value)

    def _begin(self, journal: Path | None) -> OptunaStudy:
        """The study, new or from an earlier run."""
        import optuna

        if journal is not None:
            journals.make_room(journal)
        return optuna.create_study(
            storage=None if journal is None else journals.storage(journal),
            sampler=self._sampler,
            study_name="autobrrr tune",
            direction="maximize",
            load_if_exists=True,
        )

    def _take_up(self) -> None:
        """Take over what an earlier run has finished; what it left open is given up, and comes again."""
        from optuna.trial import TrialState

        if not any(trial.state.is_finished() for trial in self._study.trials):
            self._tell_base()
        for trial in self._study.trials:
            if trial.state == TrialState.WAITING:  # cut off before it was asked for: only ask() takes it out
                self._study.tell(self._study.ask(distributions(self._space)), state=TrialState.FAIL)
            elif not trial.state.is_finished():
                self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
            elif "kind" in trial.user_attrs:
                result = result_of(trial, self._space, "from an earlier run of this study")
                if result is not None:
                    self.results.append(result)


def _sampler(seed: int) -> BaseSampler:
    """Draws nothing: all points are enqueued."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.samplers.RandomSampler(seed=seed)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        each.name: IntDistribution(0, len(each.levels) - 1)
        if each.ordered and len(each.levels) > 1
        else CategoricalDistribution(tuple(range(len(each.levels))))
        for each in space.parameters
    }


def result_of(trial: FrozenTrial, space: Space, origin: str = "") -> Result | None:
    """What a finished trial of Optuna's found; None where it has another space's parameters."""
    try:
        point = tuple(int(trial.params[each.name]) for each in space.parameters)
    except KeyError:
        return None
    kind = str(trial.user_attrs["kind"])
    why = str(trial.user_attrs.get("why", ""))
    value = trial.value if kind == "measured" else None
    low = trial.user_attrs.get("low") if kind == "measured" else None
    taken = trial.user_attrs.get("memory_bytes")
    return Result(point=point, value=value, kind=kind, why=why, low=low, memory_bytes=taken, origin=origin)
