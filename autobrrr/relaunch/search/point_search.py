"""Which point comes next, in an Optuna study: in memory, in a journal file, or in a database of many workers.

In: a space, results. Out: points, until none is worth a trial; an `AdditiveSampler` draws them. A study that
was cut off goes on, and in a database the trial of a worker that died is tried again.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from autobrrr.errors import UsageError
from autobrrr.relaunch.search import study_journal as journals
from autobrrr.relaunch.search.search_space import Point, Result, Space
from autobrrr.relaunch.search.study_storage import MOST_RETRIES, Beat, Storage

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.trial import Trial as OptunaTrial

    from autobrrr.relaunch.search.additive_sampler import AdditiveSampler

EXHAUSTIVE = 24
SHARE_OF_POINTS = 0.25
MOST_TRIALS = 40
STARTUP_TRIALS = 5
QUIET_TRIALS = 8  # without a gain, and a better one is not likely
GAIN = 0.01
T = TypeVar("T")
SPACE, SET_ASIDE, FINISHED = "space", "set_aside", "finished"


class Search:
    """One study, alone or as one of several workers.

    Args:
        trials: At most so many, by all workers together; None: all of a small space, else a quarter.
        journal: File of a study of this machine; None keeps it in memory. One that is finished is set aside.
        storage: A database that workers share, in place of that.
        name: Of the study. In a database, one that is there already is joined.
        worker: Host and pid of who measures.

    Raises:
        Busy: the journal is another run's.
        OSError: the journal can't be held or set aside.
        UsageError: the study of that name has another search space.
        AutobrrrError: the database can't be used.
    """

    def __init__(
        self,
        space: Space,
        *,
        trials: int | None = None,
        journal: Path | None = None,
        storage: Storage | None = None,
        name: str = "autobrrr tune",
        worker: tuple[str, int] | None = None,
        seed: int = 0,
    ) -> None:
        from autobrrr.relaunch.search.additive_sampler import AdditiveSampler

        self._space, self._points, self.name = space, space.points(), name
        self.exhaustive = len(self._points) <= EXHAUSTIVE
        share = max(STARTUP_TRIALS, round(SHARE_OF_POINTS * len(self._points)))
        usual = len(self._points) if self.exhaustive else min(MOST_TRIALS, share)
        self.most = min(trials or usual, len(self._points))
        self.too_large: Callable[[Point], bool] = lambda point: False
        self.results: list[Result] = []
        self._worker = worker or (socket.gethostname(), os.getpid())
        self._own: dict[Point, Result] = {}
        self._open: dict[Point, tuple[OptunaTrial, Beat | None]] = {}
        self._held: set[Point] = set()
        self._shared = storage
        self._hold = None if journal is None else journals.Hold(journal)
        sampler = AdditiveSampler(space, self._fits, seed, in_full=self.exhaustive)
        self._study = self._patiently(lambda: self._begin(journal, sampler))
        self._patiently(self._look)

    @property
    def elsewhere(self) -> int:
        """How many trials are under way in other workers; what they find is worth waiting for."""
        return len(self._held)

    def ask(self) -> Point | None:
        """The next point; None when enough were tried, no better one is likely, or others have the rest."""
        return self._patiently(self._ask)

    def tell(self, result: Result) -> bool:
        """Enter a result; False where this worker was taken for dead meanwhile and another has the point."""
        from optuna.exceptions import UpdateFinishedTrialError

        trial, beat = self._open.pop(result.point)
        if beat is not None:
            beat.stop()
        told = {name: getattr(result, name) for name in ("kind", "why", "low", "memory_bytes")}
        told["point"] = self._space.label(result.point)
        self._own[result.point] = result
        with contextlib.suppress(UpdateFinishedTrialError, ValueError):  # not running any more
            self._patiently(lambda: self._close(trial, result.value, told))
        self._patiently(self._look)
        return any(each.point == result.point and not each.origin for each in self.results)

    def finish(self) -> None:
        """The study is over: alone, the same command begins a new one; in a database its results stay."""
        if self._shared is None:
            self._study.set_user_attr(FINISHED, True)

    def close(self) -> None:
        """This run ends; what it has open is given up, and comes again."""
        from optuna.exceptions import OptunaError
        from sqlalchemy.exc import SQLAlchemyError

        from autobrrr.relaunch.search.additive_sampler import params

        with contextlib.suppress(OptunaError, SQLAlchemyError, ValueError):  # else it goes stale
            for point, (trial, beat) in self._open.items():
                if beat is not None:
                    beat.stop()
                self._close(trial, None, {SET_ASIDE: "its worker left"})
                self._study.enqueue_trial(params(self._space, point))
        self._open.clear()
        if self._hold is not None:
            self._hold.let_go()
        if self._shared is not None:
            self._shared.close()

    @property
    def best(self) -> Result | None:
        """The point that is expected to be fastest by all results: a high mean of a wide interval is luck."""
        from autobrrr.relaunch.search.additive_sampler import expected

        measured = [result for result in self.results if result.value is not None]
        if not measured:
            return None
        promise = expected(self._space, measured)
        return max(measured, key=lambda result: promise[result.point])

    def _ask(self) -> Point | None:
        from optuna.exceptions import UpdateFinishedTrialError

        from autobrrr.relaunch.search.additive_sampler import distributions, point_of

        while True:
            waits = self._look()
            taken = {result.point for result in self.results} | self._held
            free = [each for each in self._points if each not in taken and self._fits(each)]
            if len(self.results) + len(self._held) >= self.most or not free:
                return None
            if not waits and self._is_quiet(free):
                return None
            trial = self._study.ask(distributions(self._space))
            ahead = {
                point_of(each, self._space)
                for each in self._study.get_trials(deepcopy=False)
                if each.number < trial.number and not each.state.is_finished()
            }
            point = tuple(int(trial.params[each.name]) for each in self._space.parameters)
            try:
                if point not in free or point in ahead:
                    self._close(trial, None, {SET_ASIDE: "it is taken, or does not fit into memory here"})
                    continue
                for name, value in zip(("host", "pid"), self._worker, strict=True):
                    trial.set_user_attr(name, value)
            except UpdateFinishedTrialError:  # too slow: others took us for dead
                continue
            self._open[point] = trial, Beat(self._shared, trial._trial_id) if self._shared else None
            return point

    def _look(self) -> bool:
        """Read what is known now: results of all workers, points that others hold. Whether a point waits."""
        import optuna
        from optuna.trial import TrialState

        from autobrrr.relaunch.search.additive_sampler import point_of, result_of

        if self._shared is not None:
            optuna.storages.fail_stale_trials(self._study)
        found: dict[Point, Result] = {}
        died: dict[Point, int] = {}
        waits = False
        self._held.clear()
        for trial in self._study.get_trials(deepcopy=False):
            point, host = point_of(trial, self._space), trial.user_attrs.get("host")
            if point is None or point == self._space.base:
                continue
            by = f"measured on {host}" if self._shared is not None else "from an earlier run of this study"
            result = result_of(trial, self._space, by)
            if result is not None:
                if (host, trial.user_attrs.get("pid")) == self._worker:
                    result = self._own.get(point, result)
                found.setdefault(point, result)
            elif trial.state == TrialState.FAIL and SET_ASIDE not in trial.user_attrs:
                died[point] = died.get(point, 0) + 1
            elif trial.state == TrialState.RUNNING and point not in self._open:
                self._held.add(point)
            waits = waits or trial.state == TrialState.WAITING
        for point, count in died.items():
            if count > MOST_RETRIES:
                why = f"the worker that measured it died, {count} times"
                lost = Result(point=point, value=None, kind="crash", why=why, origin="on all workers")
                found.setdefault(point, lost)
        self._held -= found.keys()
        self.results = list(found.values())
        return waits

    def _begin(self, journal: Path | None, sampler: AdditiveSampler) -> OptunaStudy:
        """The study, new or from an earlier run; what that left open comes again."""
        import optuna
        from optuna.trial import TrialState, create_trial

        from autobrrr.relaunch.search.additive_sampler import distributions, params

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if journal is not None:
            journals.make_room(journal)
        study = optuna.create_study(
            storage=self._shared.rdb if self._shared else journal and journals.storage(journal),
            sampler=sampler,
            study_name=self.name,
            direction="maximize",
            load_if_exists=True,
        )
        ours = [[each.name, list(each.levels)] for each in self._space.parameters]
        if not study.get_trials(deepcopy=False):
            study.set_user_attr(SPACE, ours)
            study.add_trial(
                create_trial(
                    params=params(self._space, self._space.base),
                    distributions=distributions(self._space),
                    value=0.0,
                    user_attrs={"point": "as given"},
                )
            )
        if study.user_attrs.get(SPACE) != ours:
            raise UsageError(
                f"the study {self.name} has another search space",
                "use the same --param as the other workers, or another --study",
            )
        if self._shared is None:
            for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                study._storage.set_trial_user_attr(trial._trial_id, SET_ASIDE, "its run was cut off")
                study.tell(trial.number, state=TrialState.FAIL)
        return study

    def _close(self, trial: OptunaTrial, value: float | None, told: dict[str, object]) -> None:
        from optuna.trial import TrialState

        for name, each in told.items():
            trial.set_user_attr(name, each)
        if value is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, value)

    def _patiently(self, action: Callable[[], T]) -> T:
        return action() if self._shared is None else self._shared.patiently(action)

    def _is_quiet(self, free: Sequence[Point]) -> bool:
        """No gain for a while, and no untried point lies beside the best."""
        values = [result.value for result in self.results if result.value is not None]
        if self.exhaustive or len(values) < STARTUP_TRIALS + QUIET_TRIALS:
            return False
        if max(values[-QUIET_TRIALS:]) >= max(0.0, *values[:-QUIET_TRIALS]) + GAIN:
            return False
        best = self._space.base if self.best is None else self.best.point
        return all(self._distance(point, best) > 1 for point in free)

    def _distance(self, one: Point, other: Point) -> int:
        """Levels between two points; two choices without an order are one apart."""
        return sum(
            abs(mine - its) if parameter.ordered else int(mine != its)
            for mine, its, parameter in zip(one, other, self._space.parameters, strict=True)
        )

    def _fits(self, point: Point) -> bool:
        """Not with a batch at least as large as one that ran out of memory, or that is expected to."""
        batch = self._space.batch_of(point)
        failed = [self._space.batch_of(result.point) for result in self.results if result.kind == "oom"]
        beyond = batch is not None and any(size is not None and batch >= size for size in failed)
        return not beyond and not self.too_large(point)
