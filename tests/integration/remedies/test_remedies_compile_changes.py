"""What a script changes of its model while compiled code stands for it."""

from __future__ import annotations

import dataclasses
import functools
import types

import pytest
import torch
from torch import nn

from autobrrr.injected.live_torch.compiled_code import compiled_graphs
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.model_calls.backward_watch import ENOUGH
from autobrrr.injected.remedies.model_calls.rehearsal import Rehearsal
from support.injected.remedies import loop_of

pytestmark = pytest.mark.integration


class Margin(nn.Module):
    """Compiled code reads the margin again in backward; eager code does not."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 4)
        self.margin = nn.Parameter(torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(nn.functional.softplus(torch.tanh(self.one(x)) - self.margin))  # type: ignore[no-any-return]


def test_a_weight_that_is_written_to_before_backward_is_seen_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autobrrr.injected.remedies.compile.compile_models.says", lambda pattern: None)
    loop = loop_of(Margin)
    undo = REGISTRY["compile.default"].apply(loop.job, {})
    for _ in range(ENOUGH + 2):
        out = loop.model(torch.randn(8, 16))
        with torch.no_grad():
            loop.model.margin.clamp_(-1, 1)  # type: ignore[union-attr,operator]
        out.square().mean().backward()
    assert "before its backward" in str(undo.trouble())  # type: ignore[attr-defined]
    assert compiled_graphs() == 0
    undo()


class Staged(nn.Module):
    """Has a second stage, in which a head is trained that had no gradient before."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.late = nn.Linear(16, 16), nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.tanh(self.one(x)))  # type: ignore[no-any-return]

    def second(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.tanh(self.one(x))) + self.late(x)  # type: ignore[no-any-return]


def test_a_forward_that_the_script_puts_into_the_class_later_is_the_one_that_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autobrrr.injected.remedies.compile.compile_models.says", lambda pattern: None)
    monkeypatch.setattr(Rehearsal, "times", lambda *args: None)
    loop = loop_of(Staged)
    undo = REGISTRY["compile.default"].apply(loop.job, {})
    loop.train(ENOUGH + 1)
    assert compiled_graphs() == 1
    monkeypatch.setattr(Staged, "forward", Staged.second)
    loop.train(1)
    assert loop.model.late.weight.grad is not None  # type: ignore[union-attr]
    undo()
    REGISTRY["compile.default"].release(torch)  # type: ignore[misc]


class Bound(nn.Module):
    """Its forward is made anew each time the class is asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 4)

    def run(self, x: torch.Tensor, *, scale: float) -> torch.Tensor:
        return self.two(torch.tanh(self.one(x))) * scale  # type: ignore[no-any-return]

    forward = functools.partialmethod(run, scale=2.0)


def test_a_model_whose_class_makes_its_forward_anew_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autobrrr.injected.remedies.compile.compile_models.says", lambda pattern: None)
    monkeypatch.setattr(Rehearsal, "times", lambda *args: None)
    loop = loop_of(Bound)
    undo = REGISTRY["compile.default"].apply(loop.job, {})
    loop.train(ENOUGH + 1)
    assert compiled_graphs() == 1
    undo()
    REGISTRY["compile.default"].release(torch)  # type: ignore[misc]


class Ramped(nn.Module):
    """Its second forward comes to the same as the first for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.sigma = nn.Linear(16, 16), nn.Linear(16, 4), 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.tanh(self.one(x)))  # type: ignore[no-any-return]

    def later(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.one(x))
        return self.two(hidden + self.sigma * hidden.sin())  # type: ignore[no-any-return]


@pytest.fixture
def _compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autobrrr.injected.remedies.compile.compile_models.says", lambda pattern: None)
    monkeypatch.setattr(Rehearsal, "times", lambda *args: None)


@pytest.mark.usefixtures("_compiles")
def test_code_of_an_older_forward_never_answers_for_one_that_came_to_the_same_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = loop_of(Ramped)
    undo = REGISTRY["compile.default"].apply(loop.job, {})
    loop.train(ENOUGH + 1)
    monkeypatch.setattr(Ramped, "forward", Ramped.later)
    loop.train(6)
    loop.model.sigma = 1.0  # type: ignore[assignment]
    x = torch.ones(8, 16)
    assert torch.allclose(loop.model(x), loop.model._call_impl(x))
    undo()
    REGISTRY["compile.default"].release(torch)  # type: ignore[misc]


@dataclasses.dataclass
class Scaled:
    """A forward that has no hash."""

    scale: float

    def __get__(self, module: object, kind: object = None) -> object:
        return self if module is None else types.MethodType(self, module)

    def __call__(self, module: Ramped, x: torch.Tensor) -> torch.Tensor:
        return module.two(torch.tanh(module.one(x))) * self.scale  # type: ignore[no-any-return]


class Odd(Ramped):
    forward = Scaled(2.0)  # type: ignore[assignment]


@pytest.mark.usefixtures("_compiles")
def test_a_forward_that_is_an_object_of_the_jobs_own_ends_no_step() -> None:
    loop = loop_of(Odd)
    undo = REGISTRY["compile.default"].apply(loop.job, {})
    loop.train(1)
    undo()
