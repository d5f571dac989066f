"""`recompute.checkpoint` on blocks that draw, count, or are called otherwise: the same bits, or taken off."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.registry import WatchedUndo

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]

WIDTH = 8


class Block(nn.Module):
    """A residual layer; what scales it is up to a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(torch.tanh(self.linear(x))) * self.scale(x)

    def scale(self, x: torch.Tensor) -> torch.Tensor | float:
        return 1.0


class SkippedAtRandom(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if random.random() < 0.5 else super().forward(x)


class ScaledByNumpy(Block):
    def scale(self, x: torch.Tensor) -> float:
        return float(np.random.rand())


class ScaledByItsOwnGenerator(Block):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        return torch.rand(x.shape, generator=self.generator)


class Counts(Block):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def scale(self, x: torch.Tensor) -> float:
        self.calls += 1
        return 1 / self.calls


class CountsInABuffer(Block):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return 1 / self.calls


class CountsInTraining(CountsInABuffer):
    def scale(self, x: torch.Tensor) -> torch.Tensor | float:
        return super().scale(x) if self.training else 1.0


class CountsThroughData(CountsInABuffer):
    def scale(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.data += 1
        return 1 / self.calls


class CountsInNumpy(CountsInABuffer):
    def scale(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.numpy()[...] += 1
        return 1 / self.calls


class Decays(Block):
    def scale(self, x: torch.Tensor) -> float:
        self.linear.weight.data.mul_(0.99)
        return 1.0


class Normalizes(Block):
    def scale(self, x: torch.Tensor) -> float:
        self.linear.weight.data = self.linear.weight.data / 1.01
        return 1.0


class Spectral(Block):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.utils.parametrizations.spectral_norm(self.linear)


class SpectralByAHook(Block):
    def __init__(self) -> None:
        super().__init__()
        nn.utils.spectral_norm(self.linear)


Step = Callable[[nn.Module], None]


def plain(model: nn.Module) -> None:
    model(torch.randn(4, WIDTH)).square().mean().backward()


def with_weights_of_its_own(model: nn.Module) -> None:
    fast = {name: 1.5 * each for name, each in model.named_parameters()}
    torch.func.functional_call(model, fast, (torch.randn(4, WIDTH),)).square().mean().backward()


def evaluated_before_the_backward(model: nn.Module) -> None:
    loss = model(torch.randn(4, WIDTH)).square().mean()
    model.eval()
    loss.backward()
    model.train()


def frozen_before_the_backward(model: nn.Module) -> None:
    loss = model(torch.randn(4, WIDTH)).square().mean()
    model[0].requires_grad_(False)  # type: ignore[index]
    loss.backward()
    model[0].requires_grad_(True)  # type: ignore[index]


class ScaledByAttribute(Block):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0

    def scale(self, x: torch.Tensor) -> torch.Tensor | float:
        return self.factor


FACTOR = 1.0


def global_factor() -> float:
    return FACTOR


class ScaledByGlobal(Block):
    def scale(self, x: torch.Tensor) -> torch.Tensor | float:
        return global_factor()


SETTINGS = SimpleNamespace(inner={"factor": 1.0})


class ScaledBySettings(Block):
    def __init__(self) -> None:
        super().__init__()
        self.settings = SETTINGS

    def scale(self, x: torch.Tensor) -> torch.Tensor | float:
        return self.settings.inner["factor"]


def two_views_and_one_backward(model: nn.Module) -> None:
    global FACTOR
    losses = []
    for factor in (0.1, 1.0):
        FACTOR = SETTINGS.inner["factor"] = factor
        for block in model:  # type: ignore[attr-defined]
            block.factor = factor
        losses.append(model(torch.randn(4, WIDTH)).square().mean())
    sum(losses).backward()  # type: ignore[union-attr]


def in_evaluation_first(model: nn.Module) -> None:
    model.eval()
    plain(model)
    model.train()
    plain(model)


def trained(kind: type[Block], step: Step, *, on: bool) -> tuple[list[torch.Tensor], str | None]:
    """Eight steps, of which the remedy sees four; all that they leave, and why it had to go."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    model = nn.Sequential(*(kind() for _ in range(3)), nn.Linear(WIDTH, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    undo, why = None, None
    for number in range(8):
        if on and number == 2:
            job = Job(torch)
            job.saw_root(model)
            undo = REGISTRY["recompute.checkpoint"].apply(job, {})
        optimizer.zero_grad()
        step(model)
        optimizer.step()
        if undo is not None and number == 6:
            assert isinstance(undo, WatchedUndo)
            why = undo.trouble()
            undo()
    drawn = torch.tensor([random.random(), np.random.rand()])
    return [*(each.clone() for each in model.state_dict().values()), torch.get_rng_state(), drawn], why


@pytest.fixture(autouse=True)
def draws_as_before() -> Iterator[None]:
    states = random.getstate(), np.random.get_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])


@pytest.mark.parametrize("kind", [SkippedAtRandom, ScaledByNumpy, ScaledByItsOwnGenerator])
def test_a_block_draws_the_same_numbers_again_from_whatever_generator(kind: type[Block]) -> None:
    left, why = trained(kind, plain, on=True)
    assert why is None
    assert all(map(torch.equal, left, trained(kind, plain, on=False)[0]))


@pytest.mark.parametrize(
    "step",
    [with_weights_of_its_own, evaluated_before_the_backward, frozen_before_the_backward],
)
def test_what_the_job_changes_before_the_backward_is_as_it_was_in_the_forward(step: Step) -> None:
    def in_turn(model: nn.Module) -> None:
        plain(model)
        step(model)

    left, why = trained(Block, in_turn, on=True)
    assert why is None
    assert all(map(torch.equal, left, trained(Block, in_turn, on=False)[0]))


class InPlace(nn.Module):
    """Adds each block's result to the block's own input."""

    def __init__(self, *, by_name: bool) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Gated() for _ in range(3))
        self.by_name = by_name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x += block(x=x) if self.by_name else block(x)
        return x


class Gated(nn.Module):
    """Keeps nothing of its input for backward but what it has made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(torch.relu(self.linear(torch.relu(x))))


@pytest.mark.parametrize("by_name", [False, True])
def test_the_job_may_write_into_a_block_s_input_before_backward(*, by_name: bool) -> None:
    def left(*, on: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = InPlace(by_name=by_name)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        job = Job(torch)
        job.saw_root(model)
        undo = REGISTRY["recompute.checkpoint"].apply(job, {}) if on else lambda: None
        for _ in range(4):
            optimizer.zero_grad()
            plain(model)
            optimizer.step()
        if on:
            assert isinstance(undo, WatchedUndo)
            assert undo.trouble() is None
        undo()
        return list(model.parameters())

    assert all(map(torch.equal, left(on=True), left(on=False)))


@pytest.mark.parametrize("kind", [ScaledByAttribute, ScaledByGlobal, ScaledBySettings])
def test_two_forwards_with_other_values_before_one_backward(kind: type[Block]) -> None:
    left, why = trained(kind, two_views_and_one_backward, on=True)
    assert why is None
    assert all(map(torch.equal, left, trained(kind, two_views_and_one_backward, on=False)[0]))
    assert FACTOR == SETTINGS.inner["factor"] == 1.0


@pytest.mark.parametrize(
    ("kind", "step", "reason"),
    [
        (Counts, plain, "own state (Counts.calls)"),
        (CountsInABuffer, plain, "writes to tensors that its modules keep"),
        (CountsInTraining, in_evaluation_first, "writes to tensors that its modules keep"),
        (CountsThroughData, plain, "writes to tensors that its modules keep"),
        (CountsInNumpy, plain, "writes to tensors that its modules keep"),
        (Decays, plain, "own state (a parameter)"),
        (Normalizes, plain, "own state (a parameter)"),
        (Spectral, plain, "writes to tensors that its modules keep"),
        (SpectralByAHook, plain, "writes to tensors that its modules keep"),
    ],
)
def test_a_block_that_changes_what_it_keeps_is_never_run_twice(
    kind: type[Block], step: Step, reason: str
) -> None:
    left, why = trained(kind, step, on=True)
    assert reason in str(why)
    assert all(map(torch.equal, left, trained(kind, step, on=False)[0]))


def test_a_hook_that_the_job_sets_meanwhile_is_called_once() -> None:
    model = nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 2))
    plain(model)
    job = Job(torch)
    job.saw_root(model)
    undo = REGISTRY["recompute.checkpoint"].apply(job, {})
    plain(model)
    called: list[object] = []
    model[0].linear.register_forward_hook(lambda module, *_: called.append(module))
    plain(model)
    undo()
    assert called == [model[0].linear]
