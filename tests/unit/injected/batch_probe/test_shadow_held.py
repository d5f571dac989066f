"""What a replay would run of the job's is found wherever it is held; what usual models do is no reason."""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import logging
import operator
import sys
import types
from collections.abc import Callable

import pytest
import torch
from torch import nn

from autobrrr.injected.job_code import effects
from autobrrr.injected.job_code.bytecode_names import asked_for
from autobrrr.injected.job_state.module_state import ModuleState
from support.batch_probe.read_code import refusals as found_in


def says(x: torch.Tensor) -> torch.Tensor:
    print("called")
    return x


def quiet(x: torch.Tensor) -> torch.Tensor:
    return x


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return says(x).clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return gradient


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return says(x)


class Slotted:
    __slots__ = ("run",)

    def __init__(self, run: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.run = run


class Shift(torch.distributions.transforms.Transform):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return says(x)


class Marked(torch.Tensor):
    def mine(self) -> torch.Tensor:
        return says(self)


class Reduced:
    def __reduce_ex__(self, _: object) -> tuple[object, ...]:
        says(torch.ones(1))
        return Reduced, ()


@dataclasses.dataclass
class Made:
    size: int = 1

    def __post_init__(self) -> None:
        if self.size > 1:
            says(torch.ones(1))


FUNCTIONS = {"a": Function}
ask = getattr


class Holds(nn.Module):
    def __init__(self, held: object = None) -> None:
        super().__init__()
        self.layer, self.held, self.say = nn.Linear(2, 2), held, says


def on_a_parameter() -> nn.Module:
    model = Holds()
    model.layer.weight.run = says  # type: ignore[attr-defined]
    return model


Forward = Callable[[Holds, torch.Tensor], object]
SEEN: list[tuple[Callable[[], nn.Module], Forward]] = [
    (lambda: Holds([Function]), lambda self, x: self.held[0].apply(x)),  # type: ignore[index]
    (Holds, lambda _, x: FUNCTIONS["a"].apply(x)),  # type: ignore[no-untyped-call]
    (lambda: Holds([Block()]), lambda self, x: self.held[0](x)),  # type: ignore[index]
    (lambda: Holds({"a": Block}), lambda self, x: self.held["a"]()(x)),  # type: ignore[index]
    (lambda: Holds([Slotted(quiet), Slotted(says)]), lambda self, x: [e.run(x) for e in self.held]),  # type: ignore[attr-defined]
    (
        lambda: Holds(torch.distributions.transforms.ComposeTransform([Shift()])),
        lambda self, x: self.held(x),  # type: ignore[operator]
    ),
    (lambda: Holds(torch.ones(1).as_subclass(Marked)), lambda self, _: self.held.mine()),  # type: ignore[attr-defined]
    (on_a_parameter, lambda self, x: self.layer.weight.run(x)),  # type: ignore[operator]
    (lambda: Holds([Reduced()]), lambda self, _: copy.deepcopy(self.held)),
    (lambda: Holds(Made()), lambda self, _: dataclasses.replace(self.held, size=2)),  # type: ignore[type-var]
    (lambda: Holds([0] * 10_000 + [says]), lambda self, x: self.held[-1](x)),  # type: ignore[index]
    (Holds, lambda self, x: self.__dict__["say"](x)),
    (Holds, lambda self, x: ask(self, "sa" + str(x)[:0] + "y")(x)),
    (Holds, lambda self, x: getattr(self, ["say", ""][len(x) == 0])(x)),
    (Holds, lambda self, x: [each(x) for each in map(getattr, [self], ["say"])]),
    (lambda: Holds(operator.attrgetter("say")), lambda self, x: self.held(self)(x)),  # type: ignore[operator]
]


def refusals(model: nn.Module, forward: Forward) -> list[str]:
    kind = type("Model", (type(model),), {"forward": forward, "__module__": __name__})
    model.__class__ = kind
    return found_in(model)


@pytest.mark.parametrize(("make", "forward"), SEEN)
def test_what_a_forward_reaches_through_what_it_holds_is_read(
    make: Callable[[], nn.Module], forward: Forward
) -> None:
    found = refusals(make(), forward)
    assert any("calls print" in each or "more than can be" in each for each in found)


def test_what_is_printed_by_a_default_is_seen() -> None:
    def forward(_: Holds, x: torch.Tensor, say: Callable[..., None] = print) -> torch.Tensor:
        say(x)
        return x

    assert refusals(Holds(), forward)


def test_what_the_job_put_into_the_module_of_a_layer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    home = types.ModuleType("torch.nn.modules.conv")
    model = nn.Conv1d(1, 1, 1)
    assert not found_in(model, torch.ones(1, 1, 4))
    monkeypatch.setattr(sys.modules[home.__name__], "_single", says)
    model.padding_mode = "circular"
    assert any("calls print" in each for each in found_in(model, torch.ones(1, 1, 4)))


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: x if getattr(self, "drop", None) is None else self.drop(x),
        lambda self, x: getattr(self, "layer")(x),  # noqa: B009
    ],
)
def test_a_name_that_code_shows_leads_to_no_other_method(forward: Forward) -> None:
    class Saves(Holds):
        def save(self) -> None:
            says(torch.ones(1))

    assert not refusals(Saves(), forward)


def test_names_that_getattr_is_given() -> None:
    def shown(x: object) -> object:
        return getattr(x, "one"), getattr(x, "two", None)  # noqa: B009

    def made(x: object, name: str) -> object:
        return getattr(x, name, "two"), getattr(x, f"two{name}"), getattr(operator, name)

    def either(x: object, name: str) -> object:
        return getattr(x, name if x else "one")

    def asked(function: Callable[..., object]) -> list[tuple[str, str, bool]]:
        return list(asked_for(function.__code__, "getattr"))

    assert asked(shown) == [("", "one"), ("", "two")]
    assert asked(made) == [("", "two")]
    assert asked(either) == []
    assert asked(says) == []


class Attributes(dict):  # type: ignore[type-arg]
    def __init__(self, held: object) -> None:
        super().__init__(held)  # type: ignore[call-overload]
        self.__dict__ = self


@pytest.mark.parametrize("held", [Attributes({0: quiet}), operator.itemgetter(0)])
def test_what_models_commonly_hold_is_no_reason(held: object) -> None:
    model = Holds(held)
    model.say = quiet  # type: ignore[assignment]
    assert not refusals(model, lambda self, x: self.layer(x))
    ModuleState(torch, [model], [], set())  # type: ignore[list-item]


def test_what_shows_to_the_job_through_a_partial_or_in_memory_is_kept_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    monkeypatch.setattr(logging.root, "handlers", [])
    assert effects.kept_by_the_job() is None
    monkeypatch.setattr(logging.root, "filters", [functools.partial(says)])
    assert effects.kept_by_the_job()
    monkeypatch.setattr(logging.root, "filters", [])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    assert effects.kept_by_the_job()


class Frozen(type):
    def __setattr__(cls, name: str, value: object) -> None:
        raise AttributeError(name)


class Counter(metaclass=Frozen):
    calls = 0


class Later:
    calls = 0


def test_a_class_is_put_back_whatever_its_metaclass_says() -> None:
    model = Holds([Counter(), Later()])
    state = ModuleState(torch, [model], [], set())  # type: ignore[list-item]
    for kind in (Counter, Later):
        type.__setattr__(kind, "calls", 1)
    assert state.restore() == ["Counter.calls", "Later.calls"]
    assert Counter.calls == Later.calls == 0
