"""The doors of the loop by themselves: what happens where something of ours raises, or a remedy is gone."""

import signal
import threading
from typing import Any

import pytest
import torch

from autobrrr.agent.agent_session import AgentSession
from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from support.agent.remedies import remedy


@pytest.fixture
def optimizer() -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return torch.optim.SGD([parameter], lr=0.0)


def _breaks(*_: object, **__: Any) -> None:
    raise RuntimeError("of ours")


def test_an_error_of_ours_at_a_step_that_a_scaler_skips_ends_the_session_and_not_training(
    loop: TrainLoop, optimizer: torch.optim.Optimizer
) -> None:
    optimizer.step()
    scaler = torch.amp.GradScaler("cpu")
    loss = optimizer.param_groups[0]["params"][0].sum() * float("inf")
    scaler.scale(loss).backward()
    loop.post(_breaks)
    scaler.step(optimizer)
    assert loop.broken == "RuntimeError: of ours"
    assert loop.gone


class Ends:
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, object]] = []

    def ring_bell(self) -> None:
        pass

    def send(self, message: dict[str, object], fd: int | None = None) -> None:
        self.sent.append(message)


class Tried:
    """A session in which two remedies were tried; one is off again, and has kept something."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.let_go: list[str] = []
        registry = {
            name: remedy(name, release=lambda torch, name=name: self.let_go.append(name))
            for name in ("compiled", "graphed")
        }
        self.active = ActiveRemedies(registry)
        self.link = Ends()
        self.agent = AgentSession({}, torch, self.link, self.active)
        self.loop = self.agent._loop
        self.loop.put_on(lambda: None)
        optimizer.step()
        for name in registry:
            self.active.apply(self.loop.job, name, {})
        self.active.undo(self.active.applied[0])

    def close(self) -> None:
        self.agent._pages.close_fd()
        self.agent._pages.release()


@pytest.mark.parametrize("keep", [False, True])
def test_what_a_remedy_kept_that_was_tried_and_undone_is_let_go_of_at_the_end_of_the_session(
    optimizer: torch.optim.Optimizer, keep: bool
) -> None:
    """Compiled code would stay, and the next session would take the job for a compiled one."""
    tried = Tried(optimizer)
    if not keep:
        tried.active.undo(tried.active.applied[0])
    left: list[list[str]] = []
    leaves = threading.Thread(target=lambda: left.append(tried.agent._leave(keep=keep, patience_s=60)))
    leaves.start()
    while leaves.is_alive():
        optimizer.step()
    tried.close()
    assert tried.let_go == (["compiled"] if keep else ["compiled", "graphed"])
    assert left == [[]]
    assert tried.loop.gone


def _signalled(*_: object) -> Any:
    signal.raise_signal(signal.SIGTERM)


class Interrupted:
    """A measuring task in which a signal comes."""

    name, event, pending, resumable = "interrupted", "interrupted", False, False
    at_boundary = staticmethod(_signalled)

    def cancel(self) -> None:
        pass


@pytest.mark.parametrize("within", ["work", "task", "remedy"])
@pytest.mark.parametrize("raised", [SystemExit, TimeoutError])
def test_what_a_signal_handler_raises_within_our_work_reaches_the_job(
    loop: TrainLoop, optimizer: torch.optim.Optimizer, raised: type[BaseException], within: str
) -> None:
    def handler(*_: object) -> None:
        raise raised

    before = signal.signal(signal.SIGTERM, handler)
    try:
        optimizer.step()
        if within == "work":
            loop.post(_signalled)
        elif within == "task":
            loop.begin_task(Interrupted())
        else:
            loop.active._registry = {"a": remedy("a", _signalled)}
            loop.post(lambda: loop.active.apply(loop.job, "a", {}) and None)
        with pytest.raises(raised):
            optimizer.step()
    finally:
        signal.signal(signal.SIGTERM, before)
    if raised is TimeoutError:
        optimizer.step()
        assert (loop.broken, loop.gone) == ("TimeoutError: ", True)
