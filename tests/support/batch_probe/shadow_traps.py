"""Modules whose forward changes state of the job's that lies outside of them, each in another place.

The result of each depends on how often it was called: a replay that is not undone trains other weights.
"""

from __future__ import annotations

import collections
import contextvars
import ctypes
import functools
import itertools
import os
import random
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, ClassVar

import numpy as np
import torch
from torch import nn

from support.batch_probe.shadow import supervised
from support.batch_probe.shadow_loop import Kind


class Trap(nn.Module):
    """A linear layer, scaled by what `turn` says; `told` is what the job has counted."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (1 + 0.01 * (self.turn() % 3))

    def turn(self) -> int:
        raise NotImplementedError

    def told(self) -> object:
        raise NotImplementedError


NUMBER = 0


class GlobalNumber(Trap):
    def __init__(self) -> None:
        global NUMBER
        super().__init__()
        NUMBER = 0

    def turn(self) -> int:
        global NUMBER
        NUMBER += 1
        return NUMBER

    def told(self) -> object:
        return NUMBER


class GlobalByItsModule(GlobalNumber):
    def turn(self) -> int:
        globals()["NUMBER"] += 1
        return NUMBER


def tallied() -> int:
    tallied.calls += 1  # type: ignore[attr-defined]
    return tallied.calls  # type: ignore[attr-defined,no-any-return]


class FunctionAttribute(Trap):
    def __init__(self) -> None:
        super().__init__()
        tallied.calls = 0  # type: ignore[attr-defined]

    def turn(self) -> int:
        return tallied()

    def told(self) -> object:
        return tallied.calls  # type: ignore[attr-defined]


class FunctionByAnotherName(FunctionAttribute):
    def turn(self) -> int:
        counted = tallied
        counted.calls += 1  # type: ignore[attr-defined]
        return counted.calls  # type: ignore[attr-defined,no-any-return]


class Shared:
    calls = 0


class ClassAttribute(Trap):
    def __init__(self) -> None:
        super().__init__()
        Shared.calls = 0

    def turn(self) -> int:
        kind = Shared
        kind.calls += 1
        return kind.calls

    def told(self) -> object:
        return Shared.calls


SEEN: list[int] = []
add_to_seen = SEEN.append


class GlobalList(Trap):
    def __init__(self) -> None:
        super().__init__()
        SEEN.clear()

    def turn(self) -> int:
        add_to_seen(1)
        return len(SEEN)

    def told(self) -> object:
        return list(SEEN)


TALLY: dict[str, int] = {}
RECENT: collections.deque[int] = collections.deque(maxlen=5)


class GlobalDictAndDeque(Trap):
    def __init__(self) -> None:
        super().__init__()
        TALLY.clear()
        RECENT.clear()

    def turn(self) -> int:
        TALLY["calls"] = TALLY.get("calls", 0) + 1
        RECENT.append(TALLY["calls"])
        return TALLY["calls"]

    def told(self) -> object:
        return dict(TALLY), list(RECENT)


class OrderOfADict(Trap):
    """A cache that evicts by age: only the order of its keys changes."""

    def __init__(self) -> None:
        super().__init__()
        self.ages = collections.OrderedDict.fromkeys((0, 1, 2))

    def turn(self) -> int:
        oldest = next(iter(self.ages))
        self.ages.move_to_end(oldest)
        return oldest

    def told(self) -> object:
        return list(self.ages)


def counter() -> tuple[Callable[[], int], Callable[[], int]]:
    calls = 0

    def count() -> int:
        nonlocal calls
        calls += 1
        return calls

    return count, lambda: calls


class Closure(Trap):
    def __init__(self) -> None:
        super().__init__()
        count, self.told = counter()  # type: ignore[method-assign]
        self.steps = {"count": count}

    def turn(self) -> int:
        return self.steps["count"]()


class IteratorInADict(Trap):
    def __init__(self) -> None:
        super().__init__()
        self.sources = {"turn": itertools.count()}

    def turn(self) -> int:
        return next(self.sources["turn"])

    def told(self) -> object:
        return repr(self.sources["turn"])


class RandomSource(Trap):
    def __init__(self) -> None:
        super().__init__()
        self.dice, self.noise = random.Random(3), np.random.default_rng(3)

    def turn(self) -> int:
        return self.dice.randrange(9) + int(self.noise.integers(9))

    def told(self) -> object:
        return self.dice.getstate(), str(self.noise.bit_generator.state)


class FilePosition(Trap):
    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, IO[bytes]] = {"schedule": Path(__file__).open("rb")}  # noqa: SIM115  read from where it stands

    def turn(self) -> int:
        return self.held["schedule"].read(1)[0]

    def told(self) -> object:
        return self.held["schedule"].tell()


class CountsInAFile(Trap):
    """Opens a file anew each time: what it says is kept there."""

    def __init__(self) -> None:
        super().__init__()
        self.place = f"/tmp/autobrrr-trap-{os.getpid()}"
        Path(self.place).write_text("0")

    def turn(self) -> int:
        with open(self.place) as file:
            calls = int(file.read()) + 1
        with open(self.place, "w") as file:
            file.write(str(calls))
        return calls

    def told(self) -> object:
        return Path(self.place).read_text()

    def __del__(self) -> None:
        Path(self.place).unlink(missing_ok=True)


class ByTheClock(GlobalNumber):
    def turn(self) -> int:
        if time.monotonic() > 0:
            self.later()
        return NUMBER

    def later(self) -> None:
        global NUMBER
        NUMBER += 1


@functools.lru_cache(maxsize=2)
def looked_up(number: int) -> int:
    return number


class Cache(Trap):
    def __init__(self) -> None:
        super().__init__()
        looked_up.cache_clear()
        self.lookups = [looked_up]

    def turn(self) -> int:
        self.lookups[0](self.lookups[0].cache_info().misses)
        return looked_up.cache_info().misses

    def told(self) -> object:
        return looked_up.cache_info()


CONTEXT: contextvars.ContextVar[int] = contextvars.ContextVar("calls", default=0)


class Context(Trap):
    def __init__(self) -> None:
        super().__init__()
        CONTEXT.set(0)

    def turn(self) -> int:
        CONTEXT.set(CONTEXT.get() + 1)
        return CONTEXT.get()

    def told(self) -> object:
        return CONTEXT.get()


class PerThread(threading.local):
    calls = 0


class ThreadLocal(Trap):
    def __init__(self) -> None:
        super().__init__()
        self.places = [PerThread()]

    def turn(self) -> int:
        self.places[0].calls += 1
        return self.places[0].calls

    def told(self) -> object:
        return self.places[0].calls


class WeakTable(Trap):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[weakref.WeakKeyDictionary[type, int]] = [weakref.WeakKeyDictionary()]

    def turn(self) -> int:
        self.tables[0][Trap] = self.tables[0].get(Trap, 0) + 1
        return self.tables[0][Trap]

    def told(self) -> object:
        return self.tables[0].get(Trap)


class Packed(ctypes.Structure):
    _fields_: ClassVar = [("calls", ctypes.c_int)]


class Buffers(Trap):
    def __init__(self) -> None:
        super().__init__()
        self.packed, self.cells = Packed(), array("i", [0])

    def turn(self) -> int:
        self.packed.calls += 1
        self.cells[0] += 1
        return int(self.packed.calls)

    def told(self) -> object:
        return self.packed.calls, list(self.cells)


class Environment(Trap):
    def __init__(self) -> None:
        super().__init__()
        os.environ["AUTOBRRR_TRAP"] = "0"

    def turn(self) -> int:
        os.environ["AUTOBRRR_TRAP"] = str(int(os.environ["AUTOBRRR_TRAP"]) + 1)
        return int(os.environ["AUTOBRRR_TRAP"])

    def told(self) -> object:
        return os.environ["AUTOBRRR_TRAP"]


@dataclass
class Meter:
    """Counts in a global when it is indexed."""

    values: list[int] = field(default_factory=lambda: [0])

    def __getitem__(self, at: int) -> int:
        global NUMBER
        NUMBER += 1
        return self.values[at] + NUMBER


class SpecialMethod(GlobalNumber):
    def __init__(self) -> None:
        super().__init__()
        self.meters = [Meter()]

    def turn(self) -> int:
        return self.meters[0][0]


class PartOfIt(nn.Module):
    def count_up(self) -> int:
        global NUMBER
        NUMBER += 1
        return NUMBER


class MethodOfAPart(GlobalNumber):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([PartOfIt()])

    def turn(self) -> int:
        return max(part.count_up() for part in self.parts)  # type: ignore[operator]


class PartialOfABuiltin(Trap):
    def __init__(self) -> None:
        super().__init__()
        self.source = itertools.count()
        self.take = functools.partial(next, self.source)

    def turn(self) -> int:
        return self.take()

    def told(self) -> object:
        return repr(self.source)


class Countdown(Trap):
    """A generator of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[int] = []
        self.sources = (self.numbers(),)

    def numbers(self) -> Iterator[int]:
        for number in itertools.count():
            self.given.append(number)
            yield number

    def turn(self) -> int:
        return next(self.sources[0])

    def told(self) -> object:
        return list(self.given)


class HookThatCounts(GlobalNumber):
    def __init__(self) -> None:
        super().__init__()
        self.linear.register_forward_hook(self.seen)

    def turn(self) -> int:
        return 1

    @staticmethod
    def seen(module: nn.Module, args: tuple[object, ...], result: torch.Tensor) -> torch.Tensor:
        global NUMBER
        NUMBER += 1
        return result * (1 + 0.01 * (NUMBER % 3))


class Counted:
    n: ClassVar[int] = 0


class Made:
    def __new__(cls) -> Made:
        Counted.n += 1
        return object.__new__(cls)


@dataclass
class PostInit:
    value: int = 1

    def __post_init__(self) -> None:
        Counted.n += 1


class Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        Counted.n += 1
        return False


class Asked(metaclass=Meta):
    pass


class Temporary:
    def __del__(self) -> None:
        Counted.n += 1


class Subscripted:
    def __class_getitem__(cls, item: object) -> int:
        Counted.n += 1
        return 1


class Counts(Trap):
    """A counter on a class, advanced by a special method that no code names."""

    def __init__(self) -> None:
        super().__init__()
        Counted.n = 0

    def told(self) -> object:
        return Counted.n


class CountsInNew(Counts):
    def turn(self) -> int:
        Made()
        return Counted.n


class CountsInPostInit(Counts):
    def turn(self) -> int:
        PostInit()
        return Counted.n


class CountsInInstanceCheck(Counts):
    def turn(self) -> int:
        isinstance(1, Asked)
        return Counted.n


class CountsInDel(Counts):
    def turn(self) -> int:
        Temporary()
        return Counted.n


class CountsInClassGetItem(Counts):
    def turn(self) -> int:
        Subscripted[int]  # type: ignore[misc]
        return Counted.n


class Descriptor:
    def __get__(self, instance: object, owner: type | None = None) -> int:
        Counted.n += 1
        return Counted.n


class HasDescriptor:
    value = Descriptor()


class CountsInDescriptor(Counts):
    def __init__(self) -> None:
        super().__init__()
        self.holder = HasDescriptor()

    def turn(self) -> int:
        return self.holder.value


KEPT_ERROR = ValueError(0)


class ArgumentsOfAnError(Trap):
    def __init__(self) -> None:
        super().__init__()
        KEPT_ERROR.args = (0,)

    def turn(self) -> int:
        KEPT_ERROR.args = (KEPT_ERROR.args[0] + 1,)
        return int(KEPT_ERROR.args[0])

    def told(self) -> object:
        return KEPT_ERROR.args


RANDOM_ONLY = (RandomSource,)  # put back: may be probed
TRAPS: tuple[type[Trap], ...] = (
    GlobalNumber,
    GlobalByItsModule,
    FunctionAttribute,
    FunctionByAnotherName,
    ClassAttribute,
    GlobalList,
    GlobalDictAndDeque,
    OrderOfADict,
    Closure,
    IteratorInADict,
    FilePosition,
    CountsInAFile,
    ByTheClock,
    Cache,
    Context,
    ThreadLocal,
    WeakTable,
    Buffers,
    Environment,
    SpecialMethod,
    MethodOfAPart,
    PartialOfABuiltin,
    Countdown,
    HookThatCounts,
    ArgumentsOfAnError,
    CountsInDescriptor,
    CountsInNew,
    CountsInPostInit,
    CountsInInstanceCheck,
    CountsInDel,
    CountsInClassGetItem,
)


def job(kind: type[Trap], held: list[Trap]) -> Callable[[], Kind]:
    """A plain loop around a trap, which is then found in `held`."""

    def make() -> Kind:
        held.append(kind())
        return supervised(held[-1], torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))

    return make
