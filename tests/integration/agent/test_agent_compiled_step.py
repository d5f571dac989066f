"""A job that compiles its whole train step meets our functions in it: dynamo leaves them out, silently."""

import warnings

import pytest
import torch
from torch import nn

from autobrrr.attach.bundle import bundle_loader, code_bundle

pytestmark = pytest.mark.integration

STEPS = 40


def test_a_session_goes_on_over_a_train_step_that_is_compiled_whole() -> None:
    start = bundle_loader.load("_autobrrr_0", "source", code_bundle.entries()[1:], lambda seconds: None)
    main = start.__globals__
    agent = main["AgentSession"].__init__.__globals__
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.AdamW(model.parameters())

    @torch.compile(backend="eager")
    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    pages = agent["StepRing"]()
    pages.close_fd()
    loop = agent["TrainLoop"](torch, pages, main["ActiveRemedies"]({}), lambda event: None)
    loop.bursts.ask(4, 2, 0)
    loop.put_on(lambda: None)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(STEPS):
                step(torch.randn(2, 4))
    finally:
        loop.close_door()
        loop.take_down(keep=False, at_boundary=False)
        pages.release()
        torch._dynamo.reset()
    assert (loop.broken, loop.hot.steps, loop.left) == (None, STEPS, [])
    assert loop.sampled_steps
    assert [str(each.message) for each in told if "does not know how to trace" in str(each.message)] == []
