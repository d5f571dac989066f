"""Which point comes next, in an Optuna study: in memory, or in a database that workers may share.

In: a space, results. Out: points, until none is worth a trial. In a database a study that was cut off goes
on, and the trial of a worker that died is tried again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import optuna
import psutil
from optuna.exceptions import OptunaError, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from autobrrr.errors import UsageError
from autobrrr.recipe import script_of
from autobrrr.relaunch.search.point_sampler import PointSampler, distributions, expected, point_of
from autobrrr.relaunch.search.search_space import Point, Result, Space
from autobrrr.relaunch.search.study_storage import Storage

EXHAUSTIVE = 24
SHARE_OF_POINTS = 0.25
MOST_TRIALS = 40
STARTUP_TRIALS = 5
SPACE, LET_GO = "space", "let go"
MOST_RETRIES = 2  # of a point whose workers die over it
TOLD = [each.name for each in fields(Result) if each.name not in ("point", "value", "origin")]


class Search:
    """One study, alone or as one of several workers.

    Args:
        trials: At most so many, by all workers together; None: all of a small space, else a quarter.
        storage: A database; None keeps the study in memory.
        name: Of the study. In a database, one that is there already is joined.
        stays: In a database its results stay when the study is over; else the next run begins a new one.
        worker: Host and pid of who measures.

    Raises:
        UsageError: the study of that name has another search space.
        AutobrrrError: the database can't be used.
    """

    def __init__(
        self,
        space: Space,
        *,
        trials: int | None = None,
        storage: Storage | None = None,
        name: str = "autobrrr tune",
        stays: bool = True,
        worker: tuple[str, int] | None = None,
        seed: int = 0,
    ) -> None:
        self._space, self._points, self.name = space, space.points(), name
        self.exhaustive = len(self._points) <= EXHAUSTIVE
        share = max(STARTUP_TRIALS, round(SHARE_OF_POINTS * len(self._points)))
        usual = len(self._points) if self.exhaustive else min(MOST_TRIALS, share)
        self.most = min(trials or usual, len(self._points))
        self.too_large: Callable[[Point], bool] = lambda point: False
        self.results: list[Result] = []
        self._worker = worker or (socket.gethostname(), os.getpid())
        self._told: set[int] = set()  # trials of this run
        self._open: optuna.Trial | None = None
        self._beat: threading.Event | None = None
        self._held: dict[Point, int] = {}  # by other workers, in these trials
        self._storage, self._stays = storage, stays
        self._sampler = PointSampler(space, seed)
        with self._answering():
            self._study = self._begin()
            self._look()

    @property
    def elsewhere(self) -> int:
        """How many trials are under way in other workers; what they find is worth waiting for."""
        return len(self._held)

    def ask(self) -> Point | None:
        """The next point; None when enough were tried, or others have the rest."""
        with self._answering():
            self._look()
            while free := self._free():
                # All of a small space are tried, in their order.
                self._sampler.free, self._sampler.results = (
                    free[: 1 if self.exhaustive else None],
                    self.results,
                )
                self._open = trial = self._study.ask(distributions(self._space))
                # At once: a worker that dies without a beat is never missed.
                self._beat = None if self._storage is None else self._storage.beat(trial._trial_id)
                for name, value in zip(("host", "pid"), self._worker, strict=True):
                    trial.set_user_attr(name, value)
                self._look()
                point = point_of(trial.params, self._space)
                if point in free and self._held.get(point, trial.number) >= trial.number:
                    return point
                self._study.tell(self._let_go(), state=TrialState.FAIL)  # another worker was sooner
            return None

    def tell(self, result: Result) -> None:
        """Enter a result, unless this worker was taken for dead meanwhile: another has the point then."""
        with self._answering():
            with contextlib.suppress(UpdateFinishedTrialError, ValueError):  # not running any more
                trial = self._let_go()
                for name in TOLD:
                    trial.set_user_attr(name, getattr(result, name))
                trial.set_user_attr("point", self._space.label(result.point))
                if result.value is None:
                    self._study.tell(trial, state=TrialState.FAIL)
                else:
                    self._study.tell(trial, result.value)
                self._told.add(trial.number)
            self._look()

    def finish(self) -> None:
        """The study is over."""
        if self._storage is not None and not self._stays:
            with self._storage.answering():
                self._storage.rdb.delete_study(self._study._study_id)

    def close(self) -> None:
        """This run ends; what it has open is given up, for others to try."""
        if self._open is not None:
            with contextlib.suppress(OptunaError, SQLAlchemyError, ValueError):  # else it goes stale
                self._study.tell(self._let_go(), state=TrialState.FAIL)
        if self._storage is not None:
            self._storage.close()

    @property
    def best(self) -> Result | None:
        """The point that is expected to be fastest by all results: a high mean of a wide interval is luck."""
        measured = [result for result in self.results if result.value is not None]
        if not measured:
            return None
        promise = expected(self._space, measured)
        return max(measured, key=lambda result: promise[result.point])

    def _let_go(self) -> optuna.Trial:
        """Close the open trial, and mark it: a trial without the mark is one whose worker died."""
        assert self._open is not None
        trial, self._open = self._open, None
        if self._beat is not None:
            self._beat.set()
        trial.set_user_attr(LET_GO, True)
        return trial

    def _free(self) -> list[Point]:
        """What is worth a trial now, the least different first."""
        taken = {result.point for result in self.results} | self._held.keys()
        enough = len(self.results) + len(self._held) >= self.most
        return [] if enough else [each for each in self._points if each not in taken and self._fits(each)]

    def _look(self) -> None:
        """Read what is known now: results of all workers, points that others hold."""
        if self._storage is not None:
            optuna.storages.fail_stale_trials(self._study)
        found: dict[Point, Result] = {}
        self._held, died = {}, Counter[Point]()
        for trial in self._study.get_trials(deepcopy=False):
            point = point_of(trial.params, self._space)
            if point is None:
                continue
            host = "" if trial.number in self._told else f"measured on {trial.user_attrs.get('host')}"
            if (result := result_of(trial, point, host)) is not None:
                found.setdefault(point, result)
            elif trial.state == TrialState.RUNNING and (
                self._open is None or trial.number != self._open.number
            ):
                self._held.setdefault(point, trial.number)
            elif trial.state == TrialState.FAIL and LET_GO not in trial.user_attrs:
                died[point] += 1
        for point in (each for each, count in died.items() if count > MOST_RETRIES):
            why = f"the worker that measured it died, {died[point]} times"
            found.setdefault(point, Result(point=point, value=None, kind="crash", why=why, origin="anywhere"))
        self._held = {point: number for point, number in self._held.items() if point not in found}
        self.results = list(found.values())

    def _begin(self) -> optuna.Study:
        """The study, new or from an earlier run."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            storage=self._storage and self._storage.rdb,
            study_name=self.name,
            sampler=self._sampler,
            direction="maximize",
            load_if_exists=True,
        )
        ours = [[each.name, list(each.levels)] for each in self._space.parameters]
        if SPACE not in study.user_attrs and not study.get_trials(deepcopy=False):
            study.set_user_attr(SPACE, ours)
        if study.user_attrs.get(SPACE) != ours:
            raise UsageError(
                f"the study {self.name} has another search space",
                "use the same --param as the other workers, or another --study",
            )
        if not self._stays:  # of this machine alone: a run that was killed needs no time to be missed
            for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                if not psutil.pid_exists(trial.user_attrs.get("pid", 0)):
                    study.tell(trial.number, state=TrialState.FAIL)
        return study

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        with contextlib.nullcontext() if self._storage is None else self._storage.answering():
            yield

    def _fits(self, point: Point) -> bool:
        """Not with a batch at least as large as one that ran out of memory, or that is expected to."""
        batch = self._space.batch_of(point)
        failed = [self._space.batch_of(result.point) for result in self.results if result.kind == "oom"]
        beyond = batch is not None and any(size is not None and batch >= size for size in failed)
        return not beyond and not self.too_large(point)


def study_name(command: Sequence[str], folder: Path, space: Space, here: Sequence[object] = ()) -> str:
    """The name that workers agree on without a word: of the command, the script's text and the space.

    The folder's place may differ from machine to machine, as may the interpreter's; their names may not.

    Args:
        here: What else the results hold for, where no other machine is to join.
    """
    script, text = script_of(command), None
    words = [Path(word).name if i == 0 or word == script else word for i, word in enumerate(command)]
    if script is None and "-m" in command[:-1]:
        script = command[command.index("-m") + 1].replace(".", "/") + ".py"
    if script is not None:
        with contextlib.suppress(OSError):
            text = hashlib.sha256((folder / script).read_bytes()).hexdigest()
    levels = [(each.name, each.levels) for each in space.parameters]
    what = [words, folder.name, text, levels, space.accumulate, *here]
    return f"autobrrr-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]}"


def result_of(trial: FrozenTrial, point: Point, origin: str = "") -> Result | None:
    """What a finished trial found; None where it found nothing, or its worker died as it wrote."""
    attrs = trial.user_attrs
    if not trial.state.is_finished() or "kind" not in attrs:
        return None
    value = trial.value if trial.state == TrialState.COMPLETE else None
    if attrs["kind"] == "measured" and value is None:
        return None
    told = {name: attrs[name] for name in TOLD if name in attrs}
    return Result(point=point, value=value, origin=origin, **told)
