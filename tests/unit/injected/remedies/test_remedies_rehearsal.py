"""How far another way of calling may be from eager code: never less than eager code is from itself."""

from __future__ import annotations

import random
import warnings
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

from autobrrr.injected.remedies.model_calls.rehearsal import CLOSE, CLOSE_IN_HALF, OF_NOISE, Rehearsal
from support.batch_probe.read_code import of_ours


def rounded(module: nn.Module, off: Callable[[int], float]) -> Callable[..., object]:
    """A call of the module whose result is off by so much, from call to call."""
    calls, off = [0], of_ours(off)

    @of_ours
    def call(*args: object) -> object:
        calls[0] += 1
        return module._call_impl(*args) * (1 + off(calls[0]))

    return call


@pytest.mark.parametrize(
    ("eager_off", "other_off", "refused"),
    [
        (0.0, CLOSE / 2, False),
        (0.0, 4 * CLOSE, True),  # eager code always gives the same: rounding is no excuse
        (3 * CLOSE, 4 * CLOSE, False),
        (2 * CLOSE, 2 * CLOSE * OF_NOISE * 1.5, True),
        (CLOSE_IN_HALF, 2 * CLOSE_IN_HALF, True),
    ],
)
def test_what_eager_code_differs_by_itself_is_no_fault(
    eager_off: float, other_off: float, refused: bool
) -> None:
    module = nn.Linear(16, 4)
    rehearsal = Rehearsal(torch, module, own_stream=False)
    eager = rounded(module, lambda call: eager_off if call == 2 else 0.0)
    why = rehearsal.why_not(eager, rounded(module, lambda _: other_off), [torch.randn(8, 16)], {})
    assert (why is not None) == refused
    assert why is None or "off by" in why


def test_eager_code_is_run_once_more_only_where_that_may_decide() -> None:
    for other_off, runs in ((0.0, 1), (4 * CLOSE, 2), (2 * CLOSE_IN_HALF, 1)):
        module, seen = nn.Linear(16, 4), []
        eager = rounded(module, lambda call, seen=seen: float(bool(seen.append(call))))
        rehearsal = Rehearsal(torch, module, own_stream=False)
        rehearsal.why_not(eager, rounded(module, lambda _, off=other_off: off), [torch.randn(8, 16)], {})
        assert len(seen) == runs


class Scaled(nn.Module):
    """What scales its result is up to the test."""

    def __init__(self, scale: Callable[[object, torch.Tensor], object]) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4), scale

    def forward(self, x: torch.Tensor, given: object) -> torch.Tensor:
        return self.linear(x) * self.scale(given, x)


def rehearsed(module: nn.Module, *args: object) -> str | None:
    call = module._call_impl
    return Rehearsal(torch, module, own_stream=False).why_not(call, call, [torch.ones(2, 4), *args], {})


def noted(given: SimpleNamespace, x: torch.Tensor) -> float:
    given.total = given.total + x.sum()
    return 1.0


def test_a_rehearsal_takes_nothing_from_the_arguments_of_a_call() -> None:
    of_torch, of_python = torch.Generator().manual_seed(1), random.Random(1)
    before = of_torch.get_state(), of_python.getstate()
    assert rehearsed(Scaled(lambda given, x: torch.rand(x.shape, generator=given)), of_torch) is None
    assert rehearsed(Scaled(lambda given, _x: given.random()), of_python) is None
    assert torch.equal(of_torch.get_state(), before[0])
    assert of_python.getstate() == before[1]
    queue, kept = deque([0.5]), SimpleNamespace(total=torch.zeros(()))
    total = kept.total
    assert "changes what it is called with" in str(rehearsed(Scaled(lambda given, _x: given.pop()), queue))
    assert "changes what it is called with (an argument.total)" in str(rehearsed(Scaled(noted), kept))
    assert list(queue) == [0.5]
    assert kept.total is total
    stream = iter([0.5])
    assert "list_iterator, whose state can't be" in str(rehearsed(Scaled(lambda it, _x: next(it)), stream))
    assert list(stream) == [0.5]


def test_a_rehearsal_never_uses_up_a_graph_of_the_job_s() -> None:
    module = Scaled(lambda given, _x: given.scale)
    kept = SimpleNamespace(scale=torch.tanh(module.linear(torch.ones(2, 4))))
    assert "a graph whose backward is the job's" in str(rehearsed(module, kept))
    kept.scale.sum().backward()
    assert module.linear.weight.grad is not None


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2


def test_weights_that_a_rehearsal_has_made_are_none_of_the_job_s() -> None:
    module = nn.Linear(4, 4)
    parametrize.register_parametrization(module, "weight", Doubled())
    with parametrize.cached():
        assert rehearsed(module) is None
        assert not parametrize._cache
        module(torch.ones(2, 4)).sum().backward()
        made = dict(parametrize._cache)
        assert rehearsed(module) is None
        assert list(map(id, parametrize._cache.values())) == list(map(id, made.values()))
    assert module.parametrizations.weight.original.grad is not None


class Turned(nn.Module):
    """Complex weights; what comes out is complex too."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.to(torch.complex64) @ self.weight).conj()


@pytest.mark.parametrize("off", [0.0, 0.1])
def test_complex_numbers_are_compared_by_both_parts(off: float) -> None:
    module = Turned()
    eager = module._call_impl
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rehearsal = Rehearsal(torch, module, own_stream=False)
        why = rehearsal.why_not(eager, lambda x: eager(x) + off * eager(x).imag * 1j, [torch.randn(8, 4)], {})
    assert (why is None) == (off == 0)
    assert why is None or "off by" in why


def test_pruned_biases_are_made_anew_in_each_call_as_pruned_weights_are() -> None:
    for name in ("weight", "bias"):
        module = prune.l1_unstructured(nn.Linear(4, 4), name, 0.5)
        module(torch.ones(2, 4)).sum().backward()
        assert rehearsed(nn.Sequential(module)) is None


def test_a_tensor_that_is_given_twice_is_one_tensor_in_a_rehearsal_too() -> None:
    module = nn.Linear(4, 4)
    given, met = torch.randn(2, 4, requires_grad=True), []

    @of_ours
    def call(first: torch.Tensor, other: torch.Tensor, *, named: list[torch.Tensor]) -> torch.Tensor:
        met.append((first is named[0], first is other, first is given))
        return module._call_impl(first + named[0] + other)

    rehearsal = Rehearsal(torch, module, own_stream=False)
    assert rehearsal.why_not(call, call, [given, given.clone()], {"named": [given]}) is None
    assert set(met) == {(True, False, False)}
