"""The points of a search as an Optuna sampler: a Gaussian process where effects add up and pairs interact.

On the log of speed, what flags, variables and remedies do is nearly a sum, so a handful of trials says much
about points that share a level with them. `benchmarks/relaunch/relaunch_spaces.py` compares it with Optuna's
own samplers on spaces that were tried in full. Kernel: D. Duvenaud et al., "Additive Gaussian Processes",
NIPS 2011, orders 1 and 2.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler

from autobrrr.relaunch.search.search_space import Point, Result, Space

EFFECT = 0.25  # standard deviation of what one level does to the log of speed, before anything is known
INTERACTION = 0.1  # of what a pair does beyond the sum
ALIKE_LEVELS = 2.0  # neighboring levels of an ordered parameter share exp(-1 / this) of their effect
USUAL_ERROR = 0.05  # of a result without an interval
Z95 = 1.96
Floats = NDArray[np.float64]


class PointSampler(BaseSampler):  # type: ignore[misc]
    """Draws all parameters together: the point that is expected to improve most on the best so far.

    Attributes:
        free: What the next trial may be; at least one.
        results: What ran out of memory counts as no better than the worst; other failures say nothing.
    """

    def __init__(self, space: Space, seed: int = 0) -> None:
        self.free: Sequence[Point] = ()
        self.results: Sequence[Result] = ()
        self._space, self._draw = space, random.Random(seed)

    def infer_relative_search_space(self, study: object, trial: object) -> dict[str, BaseDistribution]:
        return distributions(self._space)

    def sample_relative(self, study: object, trial: object, search_space: object) -> dict[str, int]:
        seen, values, errors = _observed(self._space, self.results)
        so_far, _ = _posterior(self._space, seen, values, errors, seen)
        mean, spread = _posterior(self._space, seen, values, errors, self.free)
        lead = mean - so_far.max()
        z = lead / spread  # the gain is E[max(0, X)] for normal X (J. Mockus, 1978)
        below = np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in z])
        gain = lead * below + spread * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        point = self.free[
            self._draw.choice(np.flatnonzero(gain >= gain.max() - 1e-9).tolist())
        ]  # of equals one
        return {each.name: level for each, level in zip(self._space.parameters, point, strict=True)}

    def sample_independent(self, study: object, trial: object, param_name: str, distribution: object) -> int:
        raise AssertionError(f"{param_name} is drawn with the others")


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Levels as Optuna sees them."""
    return {
        each.name: IntDistribution(0, len(each.levels) - 1)
        if each.ordered and len(each.levels) > 1
        else CategoricalDistribution(tuple(range(len(each.levels))))
        for each in space.parameters
    }


def point_of(params: Mapping[str, object], space: Space) -> Point | None:
    """The point of Optuna's parameters; None where not all are known."""
    levels = [params.get(each.name) for each in space.parameters]
    return tuple(level for level in levels if isinstance(level, int)) if None not in levels else None


def expected(space: Space, results: Sequence[Result]) -> dict[Point, float]:
    """What each point that has a value is expected to bring, by all that is known: less of it is luck."""
    points, values, errors = _observed(space, results)
    mean, _ = _posterior(space, points, values, errors, points)
    return dict(zip(points, mean.tolist(), strict=True))


def _observed(space: Space, results: Sequence[Result]) -> tuple[list[Point], Floats, Floats]:
    """Points, values and standard errors; the command as given is 0 by definition."""
    points, values, errors = [space.base], [0.0], [0.0]
    worst = min([0.0, *(each.value for each in results if each.value is not None)])
    for each in results:
        value = worst if each.kind == "oom" else each.value
        if value is not None:
            points.append(each.point)
            values.append(value)
            errors.append(USUAL_ERROR if each.low is None else max(1e-3, (value - each.low) / Z95))
    return points, np.array(values), np.array(errors)


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
