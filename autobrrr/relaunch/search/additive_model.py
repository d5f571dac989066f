"""What points promise after few trials: a Gaussian process in which effects add up and pairs interact.

In: results of trials. Out: the untried point with the largest expected improvement. On the log of speed, what
flags, variables and remedies do is nearly a sum, so a handful of trials says much about points that share a
level with them. `benchmarks/relaunch/relaunch_spaces.py` compares it with Optuna's TPE on spaces that were
tried in full.

Kernel: D. Duvenaud et al., "Additive Gaussian Processes", NIPS 2011, orders 1 and 2. Expected improvement:
J. Mockus, 1978.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from autobrrr.relaunch.search.search_space import Point, Result, Space

EFFECT = 0.25  # standard deviation of what one level does to the log of speed, before anything is known
INTERACTION = 0.1  # of what a pair does beyond the sum
ALIKE_LEVELS = 2.0  # neighboring levels of an ordered parameter share exp(-1 / this) of their effect
USUAL_ERROR = 0.05  # of a result without an interval
Z95 = 1.96
Floats = NDArray[np.float64]


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
    return Result(
        point=point,
        value=value,
        kind=attrs["kind"],
        why=attrs.get("why", ""),
        low=attrs.get("low") if value is not None else None,
        memory_bytes=attrs.get("memory_bytes"),
        origin=origin,
    )


def propose(
    space: Space,
    results: Sequence[Result],
    free: Sequence[Point],
    draw: random.Random,
    pending: Collection[Point] = (),
) -> Point:
    """The most promising of the free points.

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
    """E[max(0, X)] for normal X with these means and standard deviations, shapes [n]."""
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
