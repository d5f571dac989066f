"""What the job sets in the middle of an epoch is in the next batch."""

from __future__ import annotations

import builtins
import functools
import operator
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader.dataset_walk import held_by

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]

STATE = {"scale": 1.0}
SCALE = 1.0


class Items(Dataset[torch.Tensor]):
    def __init__(self, read: Callable[..., float]) -> None:
        self.read = read

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index * self.read()])


class Defaults:
    scale = 1.0


class Config(Defaults):
    pass


class Meta(type):
    @property
    def scale(cls) -> float:
        return STATE["scale"]


class OfMeta(metaclass=Meta):
    pass


class Number(float):
    scale = 1.0


class Key:
    scale = 1.0


class OfItsOwn(types.ModuleType):
    @property
    def scale(self) -> float:
        return STATE["scale"]


def by_default(scale: float = 1.0) -> float:
    return scale


KEYED: dict[Any, int] = {Key(): 1}
NUMBER = Number(1)
MAKES, CLASSED = types.ModuleType("makes_members"), OfItsOwn("of_its_own")
MAKES.__getattr__ = lambda name: STATE[name]  # type: ignore[method-assign]

READERS: dict[str, Callable[[], float]] = {
    "a module that makes its members": lambda: MAKES.scale,
    "a module of a class of its own": lambda: CLASSED.scale,
    "a parent of a class": lambda: Config.scale,
    "a class of classes": lambda: OfMeta.scale,
    "a key": lambda: next(iter(KEYED)).scale,
    "a number of the job's own": lambda: NUMBER.scale,
    "a builtin": lambda: builtin_scale,  # type: ignore[name-defined]  # noqa: F821
    "a default": lambda: by_default(),  # noqa: PLW0108 - its own code is read
}


def set_all(scale: float) -> None:
    STATE["scale"] = Defaults.scale = scale
    next(iter(KEYED)).scale = NUMBER.scale = scale
    builtins.builtin_scale = scale  # type: ignore[attr-defined]
    by_default.__defaults__ = (scale,)


def epochs(way: str, *, with_workers: bool) -> list[float]:
    set_all(1.0)
    loader, undo, seen = DataLoader(Items(READERS[way]), batch_size=4), lambda: None, list[float]()
    for epoch in range(3):
        if epoch == 1 and with_workers:
            job = Job(torch)
            job.saw_loader(loader)
            undo = REGISTRY["loader.workers"].apply(job, {"workers": 1})
        for at, batch in enumerate(loader):
            if (epoch, at) == (2, 9):
                set_all(2.0)
            seen.append(float(batch.sum()))
        set_all(1.0)
    undo()
    return seen


@pytest.mark.parametrize("way", READERS)
def test_what_is_set_in_mid_epoch_is_in_the_next_batch(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "builtin_scale", 1.0, raising=False)
    for module in (MAKES, CLASSED):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert epochs(way, with_workers=True) == epochs(way, with_workers=False)


class Looking:
    """By names that no code shows, in functions that go by another name than their own."""

    name: ClassVar = "SCALE"
    by_lambda = property(lambda self: globals()[self.name])

    def _made(self) -> object:
        return globals()[self.name]

    __call__ = _made


@pytest.mark.parametrize("read", [lambda: Looking().by_lambda, Looking()])
def test_code_is_found_by_the_name_that_its_class_has_for_it(read: object) -> None:
    assert any("looks names up by globals" in each for each in held_by(Items(read)).unseen)  # type: ignore[arg-type]


def test_what_a_weak_reference_leads_to_may_change_unseen() -> None:
    key = Key()
    assert held_by([weakref.ref(key)]).unseen
    assert not held_by([weakref.ref(Key)]).unseen


@functools.singledispatch
def as_number(value: object) -> float:
    return float(str(value))


def test_keys_and_weak_references_to_what_is_held_change_nothing_unseen() -> None:
    owner, data = Key(), [Items(lambda: 1.0) for _ in range(3)]
    for each, held in zip(data, (operator.itemgetter("ids"), as_number, weakref.ref(owner)), strict=True):
        each.held = held  # type: ignore[attr-defined]
    data.append(Items(lambda: 1.0))
    data[3].parent = weakref.ref(data[3])  # type: ignore[attr-defined]
    assert [bool(held_by(each).unseen) for each in data] == [False, False, True, False]


def test_what_a_getter_of_items_is_given_is_looked_into() -> None:
    data = Items(lambda: 1.0)
    data.held = operator.itemgetter(iter(()))  # type: ignore[attr-defined]
    assert held_by(data).sources
