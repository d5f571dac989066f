"""What a signal handler of the job raises in a replay belongs to the job; what a replay raises does not."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable

import pytest
import torch

from autobrrr.injected.job_code import effects
from support.batch_probe.shadow_loop import OneLayer, train
from support.batch_probe.shadow_refused import trap

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _signals_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that a forward may send a signal, as it arrives from outside in life.
    monkeypatch.setattr(effects, "TRUSTED", effects.TRUSTED | {"os", "posix", "signal"})


class EndsAtTwice(OneLayer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 8:
            raise SystemExit("at most 8")
        return self.linear(x)


def test_a_forward_that_would_end_the_job_ends_the_probe_even_with_override() -> None:
    never = train(trap(EndsAtTwice), 40, probe=False)
    outcome = train(trap(EndsAtTwice), 40, probe=True, params={"override": True, "rounds": 2})
    assert outcome.fingerprint == never.fingerprint
    assert outcome.probed is not None
    assert "uses SystemExit, which could end the job" in str(outcome.probed["why"])


def test_a_signal_that_ends_the_job_ends_it_in_a_replay_too() -> None:
    class Slow(OneLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 8:  # only replays come here
                os.kill(os.getpid(), signal.SIGTERM)
            return self.linear(x)

    def ends(*_: object) -> None:
        sys.exit("terminated")

    before = signal.signal(signal.SIGTERM, ends)
    try:
        with pytest.raises(SystemExit, match="terminated"):
            train(trap(Slow), 40, probe=True, params={"override": True, "rounds": 2})
    finally:
        signal.signal(signal.SIGTERM, before)


class Preempted(Exception):
    """What a handler of the job's raises."""


class Handles:
    """A handler that is an object."""

    def handle(self, *_: object) -> None:
        raise Preempted

    __call__ = handle


def by_function(*_: object) -> None:
    raise Preempted


@pytest.mark.parametrize("handler", [by_function, Handles(), functools.partial(by_function, 1)])
@pytest.mark.parametrize("size", [4, 2, 16], ids=["in the proof", "in the first replay", "in a larger one"])
def test_what_a_handler_of_the_job_raises_in_a_replay_reaches_the_job(
    handler: Callable[..., None], size: int
) -> None:
    class Signalled(OneLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] == size:  # the batch is 8
                os.kill(os.getpid(), signal.SIGUSR1)
            return self.linear(x)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Preempted):
            train(trap(Signalled), 40, probe=True, params={"override": True, "rounds": 2})
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("handler", [by_function, Handles(), functools.partial(by_function, 1), set().add])
def test_an_error_of_a_replay_is_not_taken_for_one_of_a_handler(handler: Callable[..., None]) -> None:
    class Raises(OneLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] != 8:
                raise ValueError("only eight")
            return self.linear(x)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        outcome = train(trap(Raises), 40, probe=True, params={"override": True, "rounds": 2})
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert outcome.probed is not None
