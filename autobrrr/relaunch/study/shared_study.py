"""One study that several workers share through a database: each asks, measures on its own machine, tells.

In: a storage, a name, a space. Out: points that nobody else has, and the results of all. A point is claimed
by a trial that is created with it in one transaction; of two for one point the one with the lower number
counts. A worker that is silent for too long is taken for dead, and its trial is tried again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autobrrr.errors import UsageError
from autobrrr.recipe import script_of
from autobrrr.relaunch.search.additive_model import propose
from autobrrr.relaunch.search.point_search import Search, distributions, result_of
from autobrrr.relaunch.search.search_space import Point, Result, Space
from autobrrr.relaunch.study.study_storage import MOST_RETRIES, Beat, Storage

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.trial import FrozenTrial
    from optuna.trial import Trial as OptunaTrial

SPACE, SET_ASIDE = "space", "set_aside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Who measures."""

    host: str
    pid: int

    @staticmethod
    def own() -> Worker:
        return Worker(host=socket.gethostname(), pid=os.getpid())


class SharedSearch(Search):
    """A search whose trials, at most `trials` in all, are measured by whoever takes part.

    Args:
        name: Of the study. A study that is there already is joined.

    Raises:
        UsageError: the study of that name has another search space.
        AutobrrrError: the storage can't be used.
    """

    def __init__(
        self,
        space: Space,
        storage: Storage,
        *,
        name: str,
        seeds: Sequence[Point] = (),
        trials: int | None = None,
        seed: int = 0,
        worker: Worker | None = None,
    ) -> None:
        self.name = name
        self._storage = storage
        self._worker = worker or Worker.own()
        self._held: set[Point] = set()
        self._beats: dict[Point, Beat] = {}
        self._own: dict[Point, Result] = {}
        self._vouched: set[int] = set()  # trials of nobody
        super().__init__(space, seeds=seeds, trials=trials, seed=seed)

    @property
    def elsewhere(self) -> int:
        return len(self._held)

    def ask(self) -> Point | None:
        """The next point; None when there is none now: look at `elsewhere`."""
        return self._storage.patiently(self._ask)

    def tell(self, result: Result) -> bool:
        """Enter a result; false where this worker was taken for dead meanwhile and another has the point."""
        from optuna.exceptions import UpdateFinishedTrialError

        trial = self._open.pop(result.point)
        self._beats.pop(result.point).stop()
        with contextlib.suppress(UpdateFinishedTrialError, ValueError):  # not running any more
            self._storage.patiently(lambda: self._write(trial, result))
        self._own[result.point] = result
        self._storage.patiently(self._look)
        counts = any(each.point == result.point and not each.origin for each in self.results)
        if not counts:
            del self._own[result.point]
        return counts

    def finish(self) -> None:
        """Nothing: who comes later takes the results over, or adds trials."""

    def close(self) -> None:
        """Leave; what is open goes to another worker at once."""
        from optuna.exceptions import OptunaError
        from optuna.trial import TrialState
        from sqlalchemy.exc import SQLAlchemyError

        for beat in self._beats.values():
            beat.stop()
        with contextlib.suppress(OptunaError, SQLAlchemyError, ValueError):  # else it goes stale
            for point, trial in self._open.items():
                trial.set_user_attr(SET_ASIDE, "its worker left")
                self._study.tell(trial, state=TrialState.FAIL)
                self._study.enqueue_trial(self._params(point))
        self._open.clear()
        self._beats.clear()
        self._storage.close()

    def _begin(self, journal: Path | None) -> OptunaStudy:
        return self._storage.patiently(self._join)

    def _join(self) -> OptunaStudy:
        import optuna
        from optuna.study import StudyDirection

        study = optuna.create_study(
            storage=self._storage.rdb,
            sampler=self._sampler,
            study_name=self.name,
            direction="maximize",
            load_if_exists=True,
        )
        ours = [[each.name, list(each.levels)] for each in self._space.parameters]
        if SPACE not in study.user_attrs and not study.get_trials(deepcopy=False):
            study.set_user_attr(SPACE, ours)
            study.enqueue_trial(self._params(self._space.base))  # whoever takes it out has its value
        if study.user_attrs.get(SPACE) != ours or study.directions != [StudyDirection.MAXIMIZE]:
            raise UsageError(
                f"the study {self.name} has another search space",
                "use the same --param as the other workers, or another --study",
            )
        return study

    def _take_up(self) -> None:
        self._storage.patiently(self._look)

    def _look(self) -> list[FrozenTrial]:
        """What is known now: `results` of all workers, and points that others hold. Returns all trials."""
        import optuna
        from optuna.trial import TrialState

        optuna.storages.fail_stale_trials(self._study)
        trials: list[FrozenTrial] = self._study.get_trials(deepcopy=False)
        self._held.clear()
        found: dict[Point, Result] = {}
        died: dict[Point, int] = {}
        for trial in trials:
            point = self._point(trial)
            running = trial.state == TrialState.RUNNING and point not in self._open
            if running and "host" not in trial.user_attrs and trial.number not in self._vouched:
                # Its worker may have died before its first beat, or lost the answer when it asked: one beat,
                # and no more, lets it go stale.
                self._storage.rdb.record_heartbeat(trial._trial_id)
                self._vouched.add(trial.number)
            if point is None or point == self._space.base:
                continue
            if running:
                self._held.add(point)
            elif (result := self._result(trial)) is not None:
                found.setdefault(point, result)
            elif trial.state == TrialState.FAIL and SET_ASIDE not in trial.user_attrs:
                died[point] = died.get(point, 0) + 1
        for point, count in died.items():
            if count > MOST_RETRIES and point not in found:
                why = f"the worker that measured it died, {count} times"
                found[point] = Result(point=point, value=None, kind="crash", why=why, origin="on all workers")
        self._held -= found.keys()
        self.results = list(found.values())
        return trials

    def _result(self, trial: FrozenTrial) -> Result | None:
        """The result that a trial holds; None where it has none, or its worker died while it wrote it."""
        if not trial.state.is_finished() or "kind" not in trial.user_attrs:
            return None
        host, pid = trial.user_attrs.get("host"), trial.user_attrs.get("pid")
        ours = (host, pid) == (self._worker.host, self._worker.pid)
        result = result_of(trial, self._space, f"measured on {host}")
        if result is None or (result.kind == "measured" and result.value is None):
            return None
        return self._own.get(result.point, result) if ours else result

    def _ask(self) -> Point | None:
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        while True:
            for point in tuple(self._open):  # claimed before the connection dropped
                with contextlib.suppress(UpdateFinishedTrialError):  # and taken for dead meanwhile
                    self._sign(point)
                    return point
                self._drop(point)
            trials = self._look()
            if len(self.results) + len(self._held) >= self.most:
                return None
            if not any(trial.state == TrialState.WAITING for trial in trials):
                free = None if self._is_quiet() else self._next()
                if free is None:
                    return None
                self._study.enqueue_trial(self._params(free))
            with contextlib.suppress(UpdateFinishedTrialError):  # too slow: others took us for dead
                claimed = self._claim(self._study.ask(distributions(self._space)))
                if claimed is not None:
                    return claimed

    def _drop(self, point: Point) -> None:
        del self._open[point]
        beat = self._beats.pop(point, None)
        if beat is not None:
            beat.stop()

    def _claim(self, trial: OptunaTrial) -> Point | None:
        """Make a trial that was asked for ours; None where its point is somebody else's, or not wanted."""
        from optuna.trial import TrialState

        trials = self._study.get_trials(deepcopy=False)
        frozen = next(each for each in trials if each.number == trial.number)
        point, base = self._point(frozen), self._space.base
        ahead = {self._point(each) for each in trials if each.number < trial.number and self._lives(each)}
        why = "another trial measures this point" if point in ahead else ""
        if point is None or "fixed_params" not in frozen.system_attrs:
            why = "chosen because another worker took the waiting point"
        elif len(ahead - {None, base}) >= self.most:
            why = "the maximum number of trials is reached"
        elif self._would_not_fit(point):
            why = "it would not fit into memory here"
        if why or point is None:
            trial.set_user_attr(SET_ASIDE, why)
            self._study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
            return None
        if point == base:
            trial.set_user_attr("point", "as given")
            self._close(trial, 0.0)
            return None
        self._open[point] = trial
        self._sign(point)
        return point

    def _sign(self, point: Point) -> None:
        """Say whose an open trial is, and that its worker lives."""
        trial = self._open[point]
        if point not in self._beats:
            self._beats[point] = Beat(self._storage, trial._trial_id)
        trial.set_user_attr("host", self._worker.host)
        trial.set_user_attr("pid", self._worker.pid)

    def _lives(self, trial: FrozenTrial) -> bool:
        """Whether a trial has its point: it waits, runs, or holds a result."""
        from optuna.trial import TrialState

        given = trial.state == TrialState.COMPLETE and self._point(trial) == self._space.base
        return not trial.state.is_finished() or given or self._result(trial) is not None

    def _next(self) -> Point | None:
        """A point that nobody has, or has had."""
        taken = {result.point for result in self.results} | self._held
        free = [point for point in self._points if point not in taken and not self._would_not_fit(point)]
        queued = next((point for point in self._queue if point in free), None)
        if queued is not None or self.exhaustive or not free:
            return queued
        return propose(self._space, self.results, free, self._draw, self._held)

    def _point(self, trial: FrozenTrial) -> Point | None:
        """The point of a trial in any state; None where it is not known yet."""
        params = trial.system_attrs.get("fixed_params") or trial.params
        try:
            return tuple(int(params[each.name]) for each in self._space.parameters)
        except KeyError:
            return None

    def _params(self, point: Point) -> dict[str, int]:
        return dict(zip([each.name for each in self._space.parameters], point, strict=True))


def study_name(command: Sequence[str], folder: Path, space: Space) -> str:
    """The name that workers agree on without a word: of the command, the script's text and the space.

    The folder's place may differ from machine to machine, as may the interpreter's; their names may not.
    """
    script = script_of(command)
    words = [Path(word).name if i == 0 or word == script else word for i, word in enumerate(command)]
    try:
        text = hashlib.sha256((folder / script).read_bytes()).hexdigest() if script else ""
    except OSError:
        text = ""
    levels = [(each.name, each.levels) for each in space.parameters]
    what = [words, folder.name, text, levels, space.accumulate, space.allowed]
    return f"autobrrr-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]}"
