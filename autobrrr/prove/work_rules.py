"""Whether `after` does the work of `before`: one rule for each way of doing less.

In: accounts of both sides, and the class of their results. Out: refusals, the gravest first. Where both come
to the same numbers step by step, what a step does inside is its own affair; what a run does as a whole still
counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

import numpy as np

from autobrrr.prove.run_account import AccountedStep, RunAccount
from autobrrr.quantities import share
from autobrrr.records import ExactnessClass
from autobrrr.records.proof_records import RefusedWork, WorkDone, WorkRefusal

LESS = 0.97  # of FLOPs: what a step does besides may move a little
NOTICEABLE = 0.005
FROZEN = 1e-6  # share of the parameters
SHORT = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8")
SEEDS_BEFORE_STEP = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both accounts, over as many steps as both have, at most so many."""

    before: RunAccount
    after: RunAccount
    most: int | None = None

    @property
    def both(self) -> tuple[list[AccountedStep], list[AccountedStep]]:
        count = min(len(self.before.steps), len(self.after.steps))
        return self.before.steps[:count][: self.most], self.after.steps[:count][: self.most]

    @property
    def until(self) -> int | None:
        """Of what a run does beside its steps, only what came before this step counts; None: all."""
        return None if self.before.ended and self.after.ended else len(self.both[0])


Rule = Callable[[Sides], Iterator[RefusedWork]]


def refusals(
    before: RunAccount, after: RunAccount, cls: ExactnessClass | None, parted: int | None = None
) -> list[RefusedWork]:
    """All that speaks against comparing the two.

    Args:
        cls: Of the results; None: not known.
        parted: The step at which they part; up to it rounding was seen to be all that differs.
    """
    sides = Sides(before=before, after=after)
    if cls not in ("bitwise", "rounding"):
        return _broken((_precision, *EACH_STEP, _frozen, _operations, *WHOLE_RUN), sides)
    found = _broken((_precision, _frozen, *WHOLE_RUN), sides)
    if parted is not None:  # how the steps up to it came to the same results is their own affair
        own = _broken(EACH_STEP, replace(sides, most=parted + 1))
        known = {each.code for each in own}
        found += [each for each in _broken(EACH_STEP, sides) if each.code not in known]
    return found


def _broken(rules: Sequence[Rule], sides: Sides) -> list[RefusedWork]:
    return [each for rule in rules for each in rule(sides)]


def work_done(account: RunAccount, count: int) -> WorkDone:
    """One side's work, means over its first `count` steps."""
    steps = account.steps[:count]
    return WorkDone(
        steps=len(account.steps),
        ended=account.ended,
        samples_per_step=_mean([each.samples for each in steps]),
        tokens_per_step=_mean([each.tokens for each in steps]),
        backwards_per_step=float(np.mean([each.backwards for each in steps])),
        updates_per_step=float(np.mean([each.optimizers for each in steps])),
        updated_share=min((each.updated / each.elements for each in steps if each.elements), default=None),
        flops_per_step=_flops(steps),
        dtypes=_dtypes(steps),
        distinct_share=_distinct(steps)[0],
        dataset_samples=_dataset(account),
        evaluated=_evaluated(account, None if account.ended else count),
        checkpoints=len(account.noted("saved", None if account.ended else count)),
        seeds=[str(each) for each in account.noted("seeded", SEEDS_BEFORE_STEP)],
    )


def _ends(sides: Sides) -> Iterator[RefusedWork]:
    before, after = sides.before, sides.after
    if after.ended and len(after.steps) < len(before.steps):
        least = "" if before.ended else "at least "
        why = f"it ends after {len(after.steps)} steps, before after {least}{len(before.steps)}"
        yield _refused(WorkRefusal.FEWER_STEPS, why)


def _evaluation(sides: Sides) -> Iterator[RefusedWork]:
    its, mine = (_evaluated(each, sides.until) for each in (sides.before, sides.after))
    if mine < its:
        yield _refused(WorkRefusal.LESS_EVALUATION, f"it evaluates on {mine} samples, before on {its}")


def _checkpoints(sides: Sides) -> Iterator[RefusedWork]:
    its, mine = (cast("list[int]", each.noted("saved", sides.until)) for each in (sides.before, sides.after))
    if len(mine) < len(its):
        yield _refused(WorkRefusal.FEWER_CHECKPOINTS, f"it saves {len(mine)} checkpoints, before {len(its)}")
    elif sum(mine) < sum(its) * (1 - NOTICEABLE):
        why = f"its checkpoints hold {sum(mine):,} numbers in all, before {sum(its):,}"
        yield _refused(WorkRefusal.FEWER_CHECKPOINTS, why)


def _precision(sides: Sides) -> Iterator[RefusedWork]:
    its, mine = (sum(_dtypes(steps).get(kind, 0.0) for kind in SHORT) for steps in sides.both)
    if mine > its + NOTICEABLE:
        why = f"{share(mine)} of its products are of 16 bits or fewer, before {share(its)}"
        yield _refused(WorkRefusal.LOWER_PRECISION, why)
    order = ("highest", "high", "medium")
    lowest = [max(order.index(each.precision) for each in steps) for steps in sides.both]
    if lowest[1] > lowest[0]:
        yield _refused(
            WorkRefusal.LOWER_PRECISION,
            f"float32 products have precision {order[lowest[1]]}, before {order[lowest[0]]}",
        )


def _backward(sides: Sides) -> Iterator[RefusedWork]:
    its, mine = (float(np.mean([each.backwards for each in steps])) for steps in sides.both)
    if mine < its:
        why = f"it makes {mine:.3g} backward calls a step, before {its:.3g}"
        yield _refused(WorkRefusal.SKIPPED_BACKWARD, why)


def _frozen(sides: Sides) -> Iterator[RefusedWork]:
    its, mine = ([each.updated for each in steps] for steps in sides.both)
    still = mine.count(0) - its.count(0)
    if still > 0:
        why = f"{still} of {len(mine)} steps leave all parameters as they were"
        yield _refused(WorkRefusal.SKIPPED_UPDATES, why)
        return
    one, other = (
        float(np.mean([each.updated / max(1, each.elements) for each in steps])) if steps else 0.0
        for steps in sides.both
    )
    if other < one - FROZEN:
        why = f"a step updates {share(other, 2)} of the parameters, before {share(one, 2)}"
        yield _refused(WorkRefusal.FROZEN_LAYERS, why)


def _updates(sides: Sides) -> Iterator[RefusedWork]:
    its, mine = (sum(each.optimizers for each in steps) for steps in sides.both)
    if mine < its:
        yield _refused(WorkRefusal.SKIPPED_UPDATES, "it calls its optimizers less often")


def _samples(sides: Sides) -> Iterator[RefusedWork]:
    its, mine = (_mean([each.samples for each in steps]) for steps in sides.both)
    if its and mine and mine > its * (1 + NOTICEABLE):
        yield _refused(
            WorkRefusal.SKIPPED_UPDATES, f"{mine:.4g} samples go into one update, before {its:.4g}"
        )
    if its and mine is not None and mine < its * (1 - NOTICEABLE):
        yield _refused(WorkRefusal.DROPPED_SAMPLES, f"a step has {mine:.4g} samples, before {its:.4g}")
    held, holds = _dataset(sides.before), _dataset(sides.after)
    if held and holds and holds < held:
        yield _refused(WorkRefusal.DROPPED_SAMPLES, f"its dataset has {holds} samples, before {held}")


def _content(sides: Sides) -> Iterator[RefusedWork]:
    if len({sum(len(each.rows) for each in steps) for steps in sides.both}) > 1:
        return  # that there are fewer is another rule's affair, and they end elsewhere in an epoch
    (its, its_twice), (mine, twice) = (_distinct(steps) for steps in sides.both)
    if mine is None or its is None or mine >= its - NOTICEABLE:
        return
    if twice > its_twice:
        why = f"{twice} of {len(sides.both[1])} steps have the batch of the step before"
        yield _refused(WorkRefusal.CACHED_BATCH, why)
    else:
        why = f"{share(mine)} of the samples are read for the first time, before {share(its)}"
        yield _refused(WorkRefusal.REPEATED_SAMPLES, why)


def _lengths(sides: Sides) -> Iterator[RefusedWork]:
    its, mine = (_length(steps) for steps in sides.both)
    if its and mine and mine < its * (1 - NOTICEABLE):
        yield _refused(WorkRefusal.SHORTER_SEQUENCES, f"a sample has {mine:.4g} tokens, before {its:.4g}")


def _operations(sides: Sides) -> Iterator[RefusedWork]:
    its, mine = _counted(sides)
    if its and mine is not None and mine < LESS * its:
        yield _refused(WorkRefusal.FEWER_OPERATIONS, f"a step has {mine:.3g} FLOPs, before {its:.3g}")


def _seeds(sides: Sides) -> Iterator[RefusedWork]:
    its, mine = (each.noted("seeded", SEEDS_BEFORE_STEP) for each in (sides.before, sides.after))
    if its != mine:
        shown = [", ".join(map(str, seeds)) or "no seed" for seeds in (mine, its)]
        yield _refused(WorkRefusal.OTHER_SEED, f"it sets {shown[0]}, before {shown[1]}")


WHOLE_RUN: tuple[Rule, ...] = (_ends, _evaluation, _checkpoints)
EACH_STEP: tuple[Rule, ...] = (_backward, _samples, _content, _lengths, _updates, _seeds)


def _refused(code: WorkRefusal, why: str) -> RefusedWork:
    return RefusedWork(code=code, why=why)


def _mean(values: list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _counted(sides: Sides) -> tuple[float | None, float | None]:
    """Operations of a step, before and after; None where a side compiles, and not all of them are seen."""
    accounts = zip((sides.before, sides.after), sides.both, strict=True)
    its, mine = (None if account.noted("compiled") else _flops(steps) for account, steps in accounts)
    return its, mine


def _flops(steps: list[AccountedStep]) -> float | None:
    counted = [sum(each.flops.values()) for each in steps if each.flops is not None]
    return float(np.mean(counted)) if counted else None


def _dtypes(steps: list[AccountedStep]) -> dict[str, float]:
    """Share of the FLOPs by type of number."""
    kinds: Counter[str] = Counter()
    for each in steps:
        kinds.update(each.flops or {})
    whole = kinds.total() or 1
    return {kind: value / whole for kind, value in kinds.items()}


def _distinct(steps: list[AccountedStep]) -> tuple[float | None, int]:
    """Share of samples that come for the first time; steps with the batch of the step before."""
    rows = [row for each in steps for row in each.rows]
    twice = sum(bool(a.rows) and sorted(a.rows) == sorted(b.rows) for a, b in pairwise(steps))
    return (len(set(rows)) / len(rows) if rows else None), twice


def _length(steps: list[AccountedStep]) -> float | None:
    known = [each.tokens / each.samples for each in steps if each.tokens and each.samples]
    return float(np.mean(known)) if known else None


def _dataset(account: RunAccount) -> int | None:
    return max((size for size in account.noted("dataset") if isinstance(size, int)), default=None)


def _evaluated(account: RunAccount, count: int | None) -> int:
    last = account.evaluated_last if count is None else 0
    return last + sum(each.evaluated for each in account.steps[:count])
