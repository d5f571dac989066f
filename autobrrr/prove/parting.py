"""Where two runs from one seed part, and how much that means.

In: accounts of both sides, and of the unchanged side again. Out: a class. The first step that differs
decides: by how much its numbers differ, and whether its batch does. Differences grow from step to step,
so that a later one says less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from autobrrr.prove.run_account import AccountedStep, RunAccount
from autobrrr.records import ExactnessClass
from autobrrr.records.proof_records import Sameness

# Relative distances that another order of summation makes in one step of float32 numbers.
LOSS, GRADIENT, MOVED = 1e-5, 1e-4, 2e-4
WINDOW, FAR, PARTED = 8, 0.3, 0.01
What = Literal["batch", "output", "loss", "gradient", "parameters"]


def parting(one: Sequence[AccountedStep], other: Sequence[AccountedStep]) -> tuple[int, What] | None:
    """The first step that differs, and what differs first there; None where no step does."""
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        same: dict[What, bool] = {
            "batch": a.rows == b.rows,
            "loss": _equal(a.loss, b.loss),
            "gradient": _equal(a.gradient, b.gradient),
            "parameters": a.parameters == b.parameters,
        }
        if not all(same.values()):
            return step, min(same, key=same.__getitem__)
    return None


def sameness(before: RunAccount, twin: RunAccount, after: RunAccount) -> Sameness:
    """How the two sides part."""
    own = parting(before.steps, twin.steps)
    step, what = parting(before.steps, after.steps) or (None, None)
    place = None if step is None else _first_place(before.steps[step], after.steps[step])
    cls: ExactnessClass | None = "stream" if what == "batch" else "changes-training"
    if step is None:
        cls = "bitwise"
    elif _is_rounding(before.steps, after.steps, step):
        cls = "rounding"
    elif own is not None and not _is_rounding(before.steps, twin.steps, own[0]):
        cls = None  # not one and the same run each time: nothing can be said
    return Sameness(
        class_=cls,
        deterministic=own is None,
        compared_steps=min(len(before.steps), len(after.steps)),
        step=step,
        what="output" if place is not None and what in ("loss", "gradient", "parameters") else what,
        module=None if place is None else place[0],
        place=None if place is None else place[1],
        loss_distance=_last_distance(before, after),
        before_distance=_last_distance(before, twin),
    )


def _is_rounding(one: Sequence[AccountedStep], other: Sequence[AccountedStep], step: int) -> bool:
    a, b = one[step], other[step]
    for mine, its, most in (
        (a.loss, b.loss, LOSS),
        (a.gradient, b.gradient, GRADIENT),
        (a.moved, b.moved, MOVED),
    ):
        if (mine is None) != (its is None) or (_distance(mine, its) or 0.0) > most:
            return False
    gradients = _apart(a.gradient_signs, b.gradient_signs, a.gradient)
    moves = _apart(a.moved_signs, b.moved_signs, a.moved)
    return (
        gradients <= GRADIENT and moves <= MOVED and a.elements == b.elements and not _far_later(one, other)
    )


def _apart(one: Sequence[float], other: Sequence[float], length: float | None) -> float:
    """Distance of two vectors from their projections, relative to one's length; 0: not measured."""
    if len(one) != len(other):
        return math.inf
    if not one or not length:
        return 0.0
    return float(np.sqrt(np.mean((np.array(one) - np.array(other)) ** 2))) / length


def _far_later(one: Sequence[AccountedStep], other: Sequence[AccountedStep]) -> bool:
    """Updates become longer or shorter, for several steps on end, before rounding has parted the losses."""
    apart = [(_distance(a.loss, b.loss) or 0.0) > PARTED for a, b in zip(one, other, strict=False)]
    ratios = [
        abs(math.log(a.moved / b.moved)) if a.moved and b.moved else 0.0 if a.moved == b.moved else 9.0
        for a, b in zip(one, other, strict=False)
    ]
    last = min([len(ratios) - WINDOW, *np.flatnonzero(apart)[:1]])
    return any(np.median(ratios[i : i + WINDOW]) > FAR for i in range(0, last + 1, WINDOW // 2))


def _first_place(one: AccountedStep, other: AccountedStep) -> tuple[str, str] | None:
    """The first output that differs, of modules that both have; where the call stands in the second."""
    its: dict[str, tuple[str, int, float | None]] = {}
    for name, place, digest, length in other.places:
        its.setdefault(name, (place, digest, length))
    for name, _, digest, length in one.places:
        found = its.get(name)
        if found is not None and found[1:] != (digest, length):
            return name, found[0]
    return None


def _last_distance(one: RunAccount, other: RunAccount) -> float | None:
    count = min(len(one.steps), len(other.steps))
    return _distance(one.steps[count - 1].loss, other.steps[count - 1].loss) if count else None


def _distance(a: float | None, b: float | None) -> float | None:
    """Relative; None where one is not measured."""
    if a is None or b is None:
        return None
    if _equal(a, b):
        return 0.0
    largest = max(abs(a), abs(b))
    return abs(a - b) / largest if math.isfinite(largest) and largest else math.inf


def _equal(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))
