"""What a forward counts, wherever it is reached from, is counted once a step."""

from __future__ import annotations

import collections
import collections.abc
import copy
import dataclasses
import enum
import sys
import types
import typing
import weakref
from collections.abc import Callable

import pytest
import torch

from support.batch_probe.shadow import supervised
from support.batch_probe.shadow_loop import Kind, OneLayer, train

pytestmark = pytest.mark.integration

COUNTS = {"calls": 0}
STEPS = 40


def bump(*_: object) -> None:
    COUNTS["calls"] += 1


class Meter:
    table: typing.ClassVar = {"bump": bump}

    @staticmethod
    def tick() -> None:
        COUNTS["calls"] += 1

    @classmethod
    def tock(cls) -> None:
        COUNTS["calls"] += 1

    class Inner:
        @staticmethod
        def tick() -> None:
            COUNTS["calls"] += 1


FUNCTIONS = [exec]


class Derived(Meter):
    pass


class Mode(enum.Enum):
    A = 1

    def tick(self) -> None:
        COUNTS["calls"] += 1


class Slotted:
    __slots__ = ("call",)

    def __init__(self) -> None:
        self.call = bump


@dataclasses.dataclass(repr=False, eq=False)
class Calls:
    tick: Callable[[], None] = dataclasses.field(default_factory=lambda: bump)


class Listing(list[object]):
    def tick(self) -> None:
        COUNTS["calls"] += 1


class Made:
    def __init__(self) -> None:
        COUNTS["calls"] += 1


class Copied:
    def __deepcopy__(self, _: object) -> Copied:
        COUNTS["calls"] += 1
        return self

    def __lt__(self, _: object) -> bool:
        COUNTS["calls"] += 1
        return True


class Inserting(collections.UserList[object]):
    def insert(self, i: int, item: object) -> None:
        COUNTS["calls"] += 1

    append = collections.abc.MutableSequence.append


class Holding(OneLayer):
    """Counts by what it holds."""

    def __init__(self, held: object, count: Callable[[typing.Any], object]) -> None:
        super().__init__()
        self.held, self.count = types.SimpleNamespace(it=held), count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count(self.held.it)
        return self.linear(x)


def defaulting(_: object, call: Callable[[], None] = bump) -> None:
    call()


WAYS: dict[str, tuple[object, Callable[[typing.Any], object]]] = {
    "a static method": (None, lambda _: Meter.tick()),
    "a class method": (None, lambda _: Derived.tock()),
    "a class in a class": (None, lambda _: Meter.Inner.tick()),
    "a table of a class": (None, lambda _: Meter.table["bump"]()),
    "a member of an enumeration": (None, lambda _: Mode.A.tick()),
    "a slot": (Slotted(), lambda held: held.call()),
    "a list of the job's own": (Listing(), lambda held: held.tick()),
    "a class that is held": (Made, lambda held: held()),
    "a default factory": (collections.defaultdict(bump), lambda held: (held["at"], held.clear())),
    "a mapping of the standard library's": (collections.UserDict(at=bump), lambda held: held["at"]()),
    "a default argument": (None, defaulting),
    "a key": ({bump: 1}, lambda held: next(iter([*held]))()),
    "a name that is made": (Meter(), lambda held: getattr(held, "ti" + "ck")()),
    "what an object holds, by its dict": (Calls(), lambda held: held.__dict__["tick"]()),
    "all that an object holds": (Calls(), lambda held: [each() for each in held.__dict__.values()]),
    "what a library takes from it": (Calls(), lambda held: dataclasses.astuple(held)[0]()),
    "a class that no name leads to": (object.__new__(Made), lambda held: type(held)()),
    "a method that the standard library calls": (Inserting(), lambda held: held.append(1)),
    "another name of a copy": ((Copied(), copy.deepcopy), lambda held: held[1](held[0])),
    "an order": ((Copied(), Copied()), min),
    "code that is made": ("COUNTS['calls'] += 1", lambda held: FUNCTIONS[0](held, globals())),
    "a module": (sys.modules[__name__], lambda held: held.bump()),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_forward_counts_is_counted_once_a_step(way: str) -> None:
    def make() -> Kind:
        return supervised(Holding(*WAYS[way]), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))

    COUNTS["calls"] = 0
    found = train(make, STEPS, probe=True)
    assert (COUNTS["calls"], found.probed and found.probed["status"]) == (STEPS, "abstained")


class Trainer:
    calls = 0


class Child(OneLayer):
    def __init__(self, of: Trainer) -> None:
        super().__init__()
        self.parent = weakref.ref(of)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parent: typing.Any = self.parent()
        parent.calls += 1
        return self.linear(x)


def test_what_a_weak_reference_leads_to_is_put_back() -> None:
    trainer = Trainer()
    found = train(
        lambda: supervised(Child(trainer), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8))),
        STEPS,
        probe=True,
    )
    assert (trainer.calls, found.probed and found.probed["status"]) == (STEPS, "abstained")


def test_a_member_that_a_module_makes_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    made = types.ModuleType("made_by_itself")
    made.__getattr__ = lambda name: asked.append(name) or 1.0  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "made_by_itself", made)
    monkeypatch.setitem(globals(), "MADE", made)

    class Asks(OneLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * MADE.scale  # type: ignore[name-defined]  # noqa: F821

    def make() -> Kind:
        return supervised(Asks(), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))

    train(make, STEPS, probe=True)
    assert asked.count("scale") == STEPS
