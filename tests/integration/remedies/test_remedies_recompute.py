"""`recompute.checkpoint` on blocks that draw, count, or are called otherwise: alike, left plain, or gone."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

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


class CallsItself(Block):
    def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
        return super().forward(self(x, depth - 1) if depth else x)


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


class ByAttribute(Block):
    """Adds what a plain attribute says, or leaves it away."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.tanh(x * self.factor) if self.factor < 1 else x)


class ByAdapter(Block):
    """Has one adapter of several, which keep unlike tensors for backward."""

    def __init__(self) -> None:
        super().__init__()
        self.adapters = nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Identity()])
        self.active = self.adapters[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.tanh(self.active(x)) if self.active is self.adapters[0] else x)


def two_views_and_one_backward(model: nn.Module) -> None:
    losses = []
    for number, factor in enumerate((0.1, 1.0)):
        for block in model:  # type: ignore[attr-defined]
            block.factor = factor
            if isinstance(block, ByAdapter):
                block.active = block.adapters[number]
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


@pytest.mark.parametrize("kind", [SkippedAtRandom, ScaledByNumpy, ScaledByItsOwnGenerator, CallsItself])
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


@pytest.mark.parametrize("kind", [ByAttribute, ByAdapter])
def test_two_forwards_with_other_attributes_or_submodules_before_one_backward(kind: type[Block]) -> None:
    left, why = trained(kind, two_views_and_one_backward, on=True)
    assert why is None
    assert all(map(torch.equal, left, trained(kind, two_views_and_one_backward, on=False)[0]))


def test_it_promises_no_bits() -> None:
    assert REGISTRY["recompute.checkpoint"].cls == "changes-training"


class Attends(Block):
    """Attention, a convolution, and a tensor that is made: each by a setting of the process."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[None, None]
        x = nn.functional.scaled_dot_product_attention(x, x, x)[0, 0]
        x = torch.tanh(self.conv(x[:, None, None].expand(-1, 3, WIDTH, -1))).square().mean((1, 2))
        return super().forward((x * torch.linspace(0.1, 1, WIDTH)).to(torch.float32))


@contextmanager
def of_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Rough(TorchFunctionMode):
    """Rounds what is multiplied."""

    def __torch_function__(
        self, function: Callable[..., Any], types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        result = function(*args, **(kwargs or {}))
        return result.bfloat16().float() if function is nn.functional.linear else result


class RoughOperators(TorchDispatchMode):
    """The same, of operators."""

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        result = function(*args, **(kwargs or {}))
        return result.bfloat16().float() if function is torch.ops.aten.addmm.default else result


AROUND: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "attention": lambda: sdpa_kernel(SDPBackend.MATH),
    "dtype": lambda: of_dtype(torch.float64),
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "function mode": Rough,
    "dispatch mode": RoughOperators,
    "rounding hooks": lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.bfloat16() if t.dtype == torch.float32 else t,
        lambda t: t.float() if t.dtype == torch.bfloat16 else t,
    ),
    "no hooks": lambda: torch.autograd.graph.disable_saved_tensors_hooks("none here"),
}


@pytest.mark.parametrize("around", list(AROUND))
def test_a_context_around_the_forward_alone_leaves_its_calls_plain(around: str) -> None:
    def in_turn(model: nn.Module) -> None:
        plain(model)
        x = torch.randn(4, WIDTH)
        with AROUND[around]():
            loss = model(x).square().mean()
        loss.backward()

    left, why = trained(Attends, in_turn, on=True)
    assert why is None
    assert all(map(torch.equal, left, trained(Attends, in_turn, on=False)[0]))


def test_forward_mode_differentiation_leaves_calls_plain() -> None:
    def in_turn(model: nn.Module) -> None:
        plain(model)
        with forward_ad.dual_level():
            given = forward_ad.make_dual(torch.randn(4, WIDTH), torch.randn(4, WIDTH))
            forward_ad.unpack_dual(model(given)).tangent.square().mean().backward()

    left, why = trained(Block, in_turn, on=True)
    assert why is None
    assert all(map(torch.equal, left, trained(Block, in_turn, on=False)[0]))


class Chain(nn.Module):
    """Hands one more argument to each block."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.blocks, self.last = nn.ModuleList(kind() for _ in range(3)), nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor, more: object) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, more)
        return self.last(x)


class Takes(Block):
    def forward(self, x: torch.Tensor, more: Iterator[float]) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x * next(more))


def test_an_argument_that_a_forward_uses_up_leaves_the_call_plain() -> None:
    torch.manual_seed(1)
    model = Chain(Takes)
    job = Job(torch)
    job.saw_root(model)
    undo = REGISTRY["recompute.checkpoint"].apply(job, {})
    more = iter([1.0, 2.0, 3.0])
    model(torch.randn(4, WIDTH), more).square().mean().backward()
    assert isinstance(undo, WatchedUndo)
    assert (list(more), undo.trouble()) == ([], None)
    undo()


def test_parameters_may_be_swapped_while_a_loss_lives() -> None:
    model = nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 2))
    job = Job(torch)
    job.saw_root(model)
    undo = REGISTRY["recompute.checkpoint"].apply(job, {})
    loss = model(torch.randn(4, WIDTH)).square().mean()
    loss.backward()
    for each in model.parameters():
        each.grad = None
        torch.utils.swap_tensors(each, nn.Parameter(each.detach() / 2))
    undo()
    assert loss.isfinite()


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


class CalledWithMore(Block):
    """What scales it, it makes of another argument."""

    more: object = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        more, self.more = self.more, None
        return super().__call__(x, more)

    def forward(self, x: torch.Tensor, more: object) -> torch.Tensor:
        return x + torch.tanh(self.linear(x)) * SCALES[type(more)](more, x)


SCALES: dict[type, Callable[..., torch.Tensor | float]] = {
    torch.Generator: lambda more, x: torch.rand(x.shape, generator=more),
    random.Random: lambda more, _x: more.random(),
    deque: lambda more, _x: more.pop(),
    type(iter([])): lambda more, _x: next(more),
}


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.Generator().manual_seed(1),
        lambda: random.Random(1),
        lambda: deque([0.5]),
        lambda: iter([0.5]),
    ],
)
def test_a_block_that_is_given_what_it_could_use_up_is_called_once(made: Callable[[], object]) -> None:
    def step(model: nn.Module) -> None:
        for block in list(model.children())[:3]:
            block.more = made()
        plain(model)

    left, why = trained(CalledWithMore, step, on=True)
    assert why is None
    assert all(map(torch.equal, left, trained(CalledWithMore, step, on=False)[0]))


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
