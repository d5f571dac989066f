"""What a signal handler of the job's raises while a remedy is at work reaches the job."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import NoReturn

import pytest

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.recipe_startup import RecipeStartup
from autobrrr.injected.remedies.active_remedies import ActiveRemedies
from autobrrr.injected.remedies.registry import Refused, Remedy
from support.simulated.bare_torch import bare_torch


class Preempted(RuntimeError):
    """What a job raises to save a checkpoint."""


def preempt(*_: object) -> NoReturn:
    raise Preempted


@pytest.fixture
def handled() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, preempt)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupted(job: Job, options: object) -> Callable[[], None]:
    signal.raise_signal(signal.SIGUSR1)
    return lambda: None


def failing(job: Job, options: object) -> Callable[[], None]:
    raise RuntimeError("ours")


def active_with(apply: Callable[[Job, object], Callable[[], None]]) -> ActiveRemedies:
    remedy = Remedy(name="a", apply=apply, treats=(), reach="live", cls="bitwise", doc="For the test.")
    return ActiveRemedies({"a": remedy})


@pytest.mark.usefixtures("handled")
def test_a_remedy_that_is_interrupted_by_the_job_lets_the_job_hear_of_it() -> None:
    active = active_with(interrupted)
    with pytest.raises(Preempted):
        active.apply(Job(bare_torch()), "a", {})
    assert active.applied == []
    with pytest.raises(Refused, match="ours"):
        active_with(failing).apply(Job(bare_torch()), "a", {})


class Optimizer:
    def _optimizer_step_code(self) -> None:
        pass


@pytest.mark.usefixtures("handled")
def test_a_recipe_that_is_interrupted_by_the_job_lets_the_job_hear_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Optimizer, "_optimizer_step_code", Optimizer._optimizer_step_code)
    standin = bare_torch()
    vars(standin)["optim"] = SimpleNamespace(Optimizer=Optimizer)
    tries = []

    def apply(job: Job, options: object) -> Callable[[], None]:
        tries.append(1)
        if len(tries) == 1:
            raise Refused("no optimizer has stepped yet")
        return interrupted(job, options)

    plan = {"remedies": [{"name": "a"}]}
    RecipeStartup(standin, active_with(apply), {"plan": plan}).begin()
    with pytest.raises(Preempted):
        Optimizer()._optimizer_step_code()
    Optimizer()._optimizer_step_code()  # the recipe is through
    assert len(tries) == 2
