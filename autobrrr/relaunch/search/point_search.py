"""Which point comes next, in an Optuna study: in memory, or in a database that workers may share.

In: a space, results. Out: points, until none is worth a trial. In a database a study that was cut off goes
on, and the trial of a worker that died is tried again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import random
import socket
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import optuna
import psutil
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.exceptions import OptunaError, UpdateFinishedTrialError
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from autobrrr.errors import UsageError
from autobrrr.recipe import script_of
from autobrrr.relaunch.search.search_space import Point, Result, Space
from autobrrr.relaunch.search.study_storage import Beat, Storage

EXHAUSTIVE = 24
SHARE_OF_POINTS = 0.25
MOST_TRIALS = 40
STARTUP_TRIALS = 5
MOST_RETRIES = 2  # of a point whose workers die over it
SPACE, SET_ASIDE = "space", "set_aside"
TOLD = [each.name for each in fields(Result) if each.name not in ("point", "value", "origin")]
EFFECT = 0.25  # standard deviation of what one level does to the log of speed, before anything is known
INTERACTION = 0.1  # of what a pair does beyond the sum
ALIKE_LEVELS = 2.0  # neighboring levels of an ordered parameter share exp(-1 / this) of their effect
USUAL_ERROR = 0.05  # of a result without an interval
Z95 = 1.96
Floats = NDArray[np.float64]


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
        self._told: set[Point] = set()  # by this run
        self._open: dict[Point, tuple[optuna.Trial, Beat | None]] = {}
        self._held: set[Point] = set()
        self._storage, self._stays = storage, stays
        self._draw = random.Random(seed)
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
            return self._ask()

    def tell(self, result: Result) -> bool:
        """Enter a result; False where this worker was taken for dead meanwhile and another has the point."""
        trial, beat = self._open.pop(result.point)
        self._told.add(result.point)
        if beat is not None:
            beat.stop()
        told = {name: getattr(result, name) for name in TOLD}
        told["point"] = self._space.label(result.point)
        with self._answering():
            with contextlib.suppress(UpdateFinishedTrialError, ValueError):  # not running any more
                self._close(trial, result.value, told)
            self._look()
        return any(each.point == result.point and not each.origin for each in self.results)

    def finish(self) -> None:
        """The study is over."""
        if self._storage is not None and not self._stays:
            with self._storage.answering():
                self._storage.rdb.delete_study(self._study._study_id)

    def close(self) -> None:
        """This run ends; what it has open is given up, for others to try."""
        with contextlib.suppress(OptunaError, SQLAlchemyError, ValueError):  # else it goes stale
            for trial, beat in self._open.values():
                if beat is not None:
                    beat.stop()
                self._close(trial, None, {SET_ASIDE: "its worker left"})
        self._open.clear()
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

    def _ask(self) -> Point | None:
        while True:
            self._look()
            taken = {result.point for result in self.results} | self._held
            free = [each for each in self._points if each not in taken and self._fits(each)]
            if len(self.results) + len(self._held) >= self.most or not free:
                return None
            self._study.sampler = self._sampler_for(free)
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
            self._open[point] = trial, Beat(self._storage, trial._trial_id) if self._storage else None
            return point

    def _sampler_for(self, free: Sequence[Point]) -> BaseSampler:
        """Proposes one of these; in full, the least different first."""
        point = free[0]
        if not self.exhaustive:
            point = propose(self._space, self.results, free, self._draw, self._held)
        return PartialFixedSampler(params(self._space, point), RandomSampler())

    def _look(self) -> None:
        """Read what is known now: results of all workers, points that others hold."""
        if self._storage is not None:
            optuna.storages.fail_stale_trials(self._study)
        found: dict[Point, Result] = {}
        died: dict[Point, int] = {}
        self._held.clear()
        for trial in self._study.get_trials(deepcopy=False):
            point, host = point_of(trial, self._space), trial.user_attrs.get("host")
            if point is None:
                continue
            ours = point in self._told and (host, trial.user_attrs.get("pid")) == self._worker
            result = result_of(trial, self._space, "" if ours else f"measured on {host}")
            if result is not None:
                found.setdefault(point, result)
            elif trial.state == TrialState.FAIL and SET_ASIDE not in trial.user_attrs:
                died[point] = died.get(point, 0) + 1
            elif trial.state == TrialState.RUNNING and point not in self._open:
                self._held.add(point)
        for point, count in died.items():
            if count > MOST_RETRIES:
                why = f"the worker that measured it died, {count} times"
                lost = Result(point=point, value=None, kind="crash", why=why, origin="on all workers")
                found.setdefault(point, lost)
        self._held -= found.keys()
        self.results = list(found.values())

    def _begin(self) -> optuna.Study:
        """The study, new or from an earlier run."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            storage=self._storage and self._storage.rdb,
            study_name=self.name,
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
                    study._storage.set_trial_user_attr(trial._trial_id, SET_ASIDE, "its run was cut off")
                    study.tell(trial.number, state=TrialState.FAIL)
        return study

    def _close(self, trial: optuna.Trial, value: float | None, told: dict[str, object]) -> None:
        for name, each in told.items():
            trial.set_user_attr(name, each)
        if value is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, value)

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
    script = script_of(command)
    words = [Path(word).name if i == 0 or word == script else word for i, word in enumerate(command)]
    levels = [(each.name, each.levels) for each in space.parameters]
    text = _text_of(command, folder)
    what = [words, folder.name, text, levels, space.accumulate, *here]
    return f"autobrrr-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]}"


def _text_of(command: Sequence[str], folder: Path) -> str | None:
    """Digest of the script, or of the module that is run; None where it can't be found."""
    script = script_of(command)
    if script is None and "-m" in command[:-1]:
        script = command[command.index("-m") + 1].replace(".", "/") + ".py"
    try:
        return None if script is None else hashlib.sha256((folder / script).read_bytes()).hexdigest()
    except OSError:
        return None


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Levels as Optuna sees them."""
    return {
        each.name: IntDistribution(0, len(each.levels) - 1)
        if each.ordered and len(each.levels) > 1
        else CategoricalDistribution(tuple(range(len(each.levels))))
        for each in space.parameters
    }


def params(space: Space, point: Point) -> dict[str, int]:
    """A point as Optuna's parameters."""
    return dict(zip([each.name for each in space.parameters], point, strict=True))


def point_of(trial: FrozenTrial, space: Space) -> Point | None:
    """The point of a trial in any state; None where it is not known yet, or of another space."""
    try:
        return tuple(int(trial.params[each.name]) for each in space.parameters)
    except KeyError:
        return None


def result_of(trial: FrozenTrial, space: Space, origin: str = "") -> Result | None:
    """What a finished trial found; None where it found nothing, or its worker died as it wrote."""
    attrs, point = trial.user_attrs, point_of(trial, space)
    if point is None or not trial.state.is_finished() or "kind" not in attrs:
        return None
    value = trial.value if trial.state == TrialState.COMPLETE else None
    if attrs["kind"] == "measured" and value is None:
        return None
    told = {name: attrs[name] for name in TOLD if attrs.get(name) is not None}
    return Result(point=point, value=value, origin=origin, **told)


def propose(
    space: Space,
    results: Sequence[Result],
    free: Sequence[Point],
    draw: random.Random,
    pending: Collection[Point] = (),
) -> Point:
    """The most promising of the free points, by a Gaussian process.

    In it effects add up and pairs interact. On the log of speed, what flags, variables and remedies do is
    nearly a sum, so a handful of trials says much about points that share a level with them.
    `benchmarks/relaunch/relaunch_spaces.py` compares it with Optuna's TPE on spaces that were tried in full.
    Kernel: D. Duvenaud et al., "Additive Gaussian Processes", NIPS 2011, orders 1 and 2.

    Args:
        results: What ran out of memory counts as no better than the worst; other failures say nothing.
        free: At least one.
        draw: Chooses among equals.
        pending: Points under way elsewhere: expected to bring what the model expects of them.
    """
    points, values, errors = _observed(space, results)
    beyond = [each.point for each in results if each.kind == "oom"]
    for more, value in ((beyond, values.min()), (list(pending), None)):
        if more:
            brings = np.full(len(more), value)
            if value is None:
                brings, _ = _posterior(space, points, values, errors, more)
            points, values = [*points, *more], np.concatenate([values, brings])
            errors = np.concatenate([errors, np.full(len(more), USUAL_ERROR)])
    so_far, _ = _posterior(space, points, values, errors, points)
    mean, spread = _posterior(space, points, values, errors, free)
    gain = expected_improvement(mean - so_far.max(), spread)
    return free[draw.choice(np.flatnonzero(gain >= gain.max() - 1e-9).tolist())]


def expected(space: Space, results: Sequence[Result]) -> dict[Point, float]:
    """What each point that has a value is expected to bring, by all that is known: less of it is luck."""
    points, values, errors = _observed(space, results)
    mean, _ = _posterior(space, points, values, errors, points)
    return dict(zip(points, mean.tolist(), strict=True))


def expected_improvement(lead: Floats, spread: Floats) -> Floats:
    """E[max(0, X)] for normal X with these means and standard deviations, shapes [n] (J. Mockus, 1978)."""
    z = lead / spread
    below = np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in z])
    return np.asarray(lead * below + spread * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi), dtype=np.float64)


def _observed(space: Space, results: Sequence[Result]) -> tuple[list[Point], Floats, Floats]:
    """Points, values and standard errors; the command as given is 0 by definition."""
    measured = [(each.point, each.value, each.low) for each in results if each.value is not None]
    points = [space.base, *(point for point, _, _ in measured)]
    values = np.array([0.0, *(value for _, value, _ in measured)])
    return points, values, np.array([0.0, *(_error(value, low) for _, value, low in measured)])


def _error(value: float, low: float | None) -> float:
    return USUAL_ERROR if low is None else max(1e-3, (value - low) / Z95)


def _posterior(
    space: Space, seen: Sequence[Point], values: Floats, errors: Floats, at: Sequence[Point]
) -> tuple[Floats, Floats]:
    """Mean and standard deviation at points, shapes [len(at)]."""
    across = _kernel(space, at, seen)
    known = _kernel(space, seen, seen) + np.diag(errors**2 + 1e-9)
    solved = np.linalg.solve(known, across.T)
    parameters = len(space.parameters)
    prior = parameters * EFFECT**2 + parameters * (parameters - 1) / 2 * INTERACTION**2
    variance = prior - np.einsum("ij,ji->i", across, solved)
    return values @ solved, np.sqrt(np.maximum(variance, 1e-12))


def _kernel(space: Space, one: Sequence[Point], other: Sequence[Point]) -> Floats:
    """Covariances, shape [len(one), len(other)]."""
    apart = np.abs(np.array(one)[:, None, :] - np.array(other)[None, :, :])
    ordered = np.array([each.ordered for each in space.parameters])
    alike = np.where(ordered, np.exp(-apart / ALIKE_LEVELS), apart == 0)
    total = alike.sum(axis=2)
    pairs = (total**2 - (alike**2).sum(axis=2)) / 2
    return np.asarray(EFFECT**2 * total + INTERACTION**2 * pairs, dtype=np.float64)
