"""Gradients that one loss makes for another one's optimizer, which drops them before it steps.

In: a look at each optimizer's first gradient before and after each run of autograd's engine. Out: the lines
whose runs add to gradients that an optimizer has used already. A step raises its parameters' version; a
gradient is known by its address, so none is kept alive. One zeroed in place may be a clipped one: not told.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, islice
from typing import Any

from ..live_torch.dispatch_modes import unseen
from ..live_torch.job_signals import ANY
from ..live_torch.live_job import Job
from .code_sites import CallSite

MOST_OPTIMIZERS, MOST_WEIGHTS = 16, 64
Look = tuple[int, int, int, int]  # a parameter's version, its gradient's address and version or 0, its id
Waste = tuple[str, CallSite]  # what kind of, and the line


class DroppedGradients:
    """Of a job with several optimizers; one alone drops what it can't use, as an overflow."""

    def __init__(self, job: Job) -> None:
        self._job = job
        # By optimizer: as the last run left it, and the runs in vain since its step, as it seems.
        self._kept: dict[int, tuple[Look, list[tuple[Waste, int]]]] = {}
        self.spent_ns: dict[Waste, list[int]] = {}  # its runs

    def before(self) -> dict[int, Look]:
        """The engine is about to run."""
        looks = self._look()
        for key, look in looks.items():
            made, in_vain = self._kept.get(key, (look, []))
            if look[:2] != made[:2]:
                for at, ns in in_vain if look[:2] == (made[0], 0) else ():
                    self.spent_ns.setdefault(at, []).append(ns)
                in_vain.clear()
        return looks

    def after(self, before: dict[int, Look], at: CallSite, took_ns: int, beyond: Collection[int]) -> None:
        """It has run for this line, for so long; `beyond`: ids of weights whose network feeds another one."""
        for key, look in self._look().items():
            was = before.get(key, (0, 0, 0, 0))
            if look[1] and look != was:
                made, in_vain = self._kept.get(key, (look, []))
                if in_vain or (made[1] == was[1] != 0 and made[0] != was[0]):
                    what = "goes too far" if look[3] in beyond else "drops gradients"
                    in_vain.append(((what, at), took_ns))
                self._kept[key] = look, in_vain

    def _look(self) -> dict[int, Look]:
        found, optimizers = dict[int, Look](), self._job.optimizers
        with unseen(), ANY:
            for one in optimizers[:MOST_OPTIMIZERS] if len(optimizers) > 1 else ():
                groups: Any = getattr(one, "param_groups", ())
                weights = list(islice(chain.from_iterable(each["params"] for each in groups), MOST_WEIGHTS))
                weight = next((each for each in weights if each.grad is not None), weights[0])
                grad = weight.grad
                made = (0, 0) if grad is None else (grad._cdata, grad._version)
                found[id(one)] = weight._version, *made, id(weight)
        return found
