"""What lately came to run unread in a replay, or ran as it was looked at."""

from __future__ import annotations

import json
import operator
import sys
import types
from collections.abc import Callable

import pytest
import torch
from torch import nn

from autobrrr.injected.job_code.bytecode_names import asked_for
from support.batch_probe.read_code import refusals as found


def says(x: object) -> object:
    print("called")
    return x


class Encoder(json.JSONEncoder):
    def default(self, o: object) -> object:
        return says(1)


class Text:
    def __str__(self) -> str:
        return str(says("text"))


class Runs:
    def run(self, x: object) -> object:
        return says(x)


class Made:
    def __init__(self, x: object) -> None:
        self.x = says(x)


class Sized(dict[str, int]):
    def __len__(self) -> int:
        raise AssertionError("the job's own")


class Block(nn.TransformerEncoderLayer):
    def _ff_block(self, x: torch.Tensor) -> torch.Tensor:
        says(x)
        return x


show = str
own = types.ModuleType("of_the_job")
exec("def says(x):\n    print('called')\n    return x\n", own.__dict__)


def encodes(self, x):  # type: ignore[no-untyped-def]
    return x * len(json.dumps(self.held, cls=Encoder))


def asks(self, x):  # type: ignore[no-untyped-def]
    from operator import methodcaller

    return methodcaller("run", x)(self.held)


def imports(self, x):  # type: ignore[no-untyped-def]
    from of_the_job import says as tells

    return tells(x)


def by_dict(self, x):  # type: ignore[no-untyped-def]
    return self.__dict__["held"](x).x


def percent(self, x):  # type: ignore[no-untyped-def]
    text = "%s"
    text %= self.held
    return x * len(text)


def renamed(self, x):  # type: ignore[no-untyped-def]
    return x * len(show(self.held))


def one_of(self, x):  # type: ignore[no-untyped-def]
    return getattr((operator, self.held)[1], self.name.lower())(x)


def nothing(self, x):  # type: ignore[no-untyped-def]
    return x


def holding(forward: Callable[..., object], held: object) -> nn.Module:
    module = type("Holds", (nn.Module,), {"forward": forward})()
    module.held, module.name = held, "RUN"  # type: ignore[assignment]
    return module


@pytest.mark.parametrize(
    ("forward", "held"),
    [
        (encodes, Runs()), (asks, Runs()), (imports, None), (by_dict, Made), (percent, Text()),
        (renamed, Text()), (one_of, Runs()),
    ],
)  # fmt: skip
def test_it_is_read(forward: Callable[..., object], held: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "of_the_job", own)
    assert any("print" in each for each in found(holding(forward, held)))


@pytest.mark.parametrize("layer", [Block(8, 2, 8), nn.TransformerEncoderLayer(8, 2, 8, activation=says)])
def test_what_a_layer_of_a_librarys_calls_back_is_read(layer: nn.Module) -> None:
    assert any("print" in each for each in found(layer, torch.ones(1, 2, 8)))


@pytest.mark.parametrize("held", [Sized(a=1), [1, ("a", 2), None]])
def test_it_can_be_looked_at(held: object) -> None:
    assert found(holding(nothing, held)) == []


def test_which_global_is_asked() -> None:
    assert list(asked_for(one_of.__code__, "getattr")) == []


class Set:
    def __init__(self) -> None:
        self._v = 0

    @property
    def v(self) -> int:
        return self._v

    @v.setter
    def v(self, value: int) -> None:
        says(value)


class Sets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held = Set()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.held.v = 1
        return x


set_threads = torch.set_num_threads


class Settings(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        set_threads(1)
        return x


class SettingsByName(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        getattr(torch, "set_num_threads")(1)  # noqa: B009
        return x


@pytest.mark.parametrize("kind", [Sets, Settings, SettingsByName])
def test_setters_and_settings_are_seen_under_any_name(kind: type[nn.Module]) -> None:
    assert found(kind())


def test_long_tables_of_words_are_no_reason() -> None:
    model = nn.Linear(2, 2)
    model.ranks = {(str(at), "x"): at for at in range(48_894)}  # type: ignore[assignment]
    assert not found(model)
    ranks = {**model.ranks, ("x", says): 1}  # type: ignore[dict-item]
    assert not found(holding(nothing, ranks))
    assert found(holding(lambda self, x: next(reversed(self.held))[1](x), ranks))
