"""The doors of the loop by themselves: what happens where something of ours raises, or a lever is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from autobrrr.agent.levers import Levers
from autobrrr.agent.loop import Loop
from autobrrr.agent.pages import Pages


@pytest.fixture
def loop() -> Iterator[Loop]:
    pages = Pages()
    pages.close_fd()
    made = Loop(torch, pages, Levers({}), lambda event: None)
    made.put_on(lambda: None)
    yield made
    if not made.gone:
        made.close_door()
        made.take_down_from_outside(keep=False)
    pages.release()


@pytest.fixture
def optimizer() -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return torch.optim.SGD([parameter], lr=0.0)


def _breaks(*_: object, **__: Any) -> None:
    raise RuntimeError("of ours")


def test_an_error_of_ours_at_a_step_that_a_scaler_skips_ends_the_session_and_not_training(
    loop: Loop, optimizer: torch.optim.Optimizer
) -> None:
    optimizer.step()
    scaler = torch.amp.GradScaler("cpu")
    loss = optimizer.param_groups[0]["params"][0].sum() * float("inf")
    scaler.scale(loss).backward()
    loop.post(_breaks)
    scaler.step(optimizer)
    assert loop.broken == "RuntimeError: of ours"
    assert loop.gone
