"""The scan reads what no name leads to, functions of autograd, and what the job has put into torch's own."""

from __future__ import annotations

import copy
import functools
import operator
import types
from collections.abc import Callable

import pytest
import torch
from torch import nn

from autobrrr.injected.job_code.replaced_functions import replaced_functions
from support.batch_probe.read_code import refusals


class Prints(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, approximate="none"):  # type: ignore[no-untyped-def]
        print("called")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return gradient, None


prints = Prints.apply


class Aliased(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return prints(x)  # type: ignore[no-any-return,no-untyped-call]


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = Prints.apply

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x)  # type: ignore[no-any-return,no-untyped-call]


@pytest.mark.parametrize("kind", [Aliased, Held])
def test_a_function_of_autograd_is_read_by_whatever_name_it_is_applied(kind: type[nn.Module]) -> None:
    assert any("calls print" in one for one in refusals(kind()))


def announced(function: Callable[..., object]) -> Callable[..., object]:
    def around(*args: object, **kwargs: object) -> object:
        print("called")
        return function(*args, **kwargs)

    return around


@pytest.mark.parametrize(
    ("owner", "name", "put"),
    [
        (nn.functional, "gelu", lambda _: Prints.apply),
        (torch, "layer_norm", announced),
        (nn.Conv1d, "_conv_forward", announced),
        (nn.Module, "_call_impl", announced),
    ],
)
def test_what_the_job_put_into_torchs_own_is_read_wherever_a_layer_meets_it(
    owner: object, name: str, put: Callable[[object], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(nn.Conv1d(1, 2, 3), nn.GELU(), nn.LayerNorm(2))
    assert not refusals(model, torch.ones(1, 1, 4))
    monkeypatch.setattr(owner, name, put(vars(owner)[name]))
    assert any("calls print" in one for one in refusals(model, torch.ones(1, 1, 4)))
    if not isinstance(owner, type):
        assert [each for each, _ in replaced_functions(torch)] == [f"{owner.__name__}.{name}"]  # type: ignore[attr-defined]


def says() -> int:
    print("called")
    return 1


class Helper:
    def run(self) -> int:
        return says()

    @staticmethod
    def fixed() -> int:
        return says()

    @property
    def value(self) -> int:
        return says()


class Below(Helper):
    pass


@functools.singledispatch
def chosen(_: object) -> int:
    return 1


chosen.register(int, lambda _: says())
FUNCTIONS = {"a": says}
LISTED = (says,)
SPACE = types.SimpleNamespace(run=says)


class Copied:
    def __deepcopy__(self, _: object) -> Copied:
        says()
        return self


COPIED = Copied()


class Calls(nn.Module):
    def step_one(self) -> int:
        return says()


def by_default(self: Calls, x: torch.Tensor, function: Callable[[], int] = says) -> torch.Tensor:
    return x + function()


@pytest.mark.parametrize(
    "forward",
    [
        by_default,
        lambda self, x: x + Helper.fixed(),
        lambda self, x: x + Helper().run(),
        lambda self, x: x + Below().value,
        lambda self, x: x + FUNCTIONS["a"](),
        lambda self, x: x + LISTED[0](),
        lambda self, x: x + SPACE.run(),
        lambda self, x: x + chosen(1),
        lambda self, x: x + getattr(self, "step_" + "one")(),
        lambda self, x: x + operator.methodcaller("run")(Helper()),
        lambda self, x: copy.deepcopy(COPIED) and x,
    ],
)
def test_a_function_that_no_name_leads_to_is_read_all_the_same(forward: Callable[..., torch.Tensor]) -> None:
    model = type("Calling", (Calls,), {"forward": forward})()
    assert any("calls print" in one for one in refusals(model))
