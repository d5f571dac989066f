"""What a snapshot of modules keeps of all kinds of things that they may hold, and what it leaves alone."""

from __future__ import annotations

import array
import collections
import contextvars
import copy
import ctypes
import email.message
import enum
import functools
import inspect
import itertools
import logging
import mmap
import pathlib
import queue
import re
import threading
import types
import weakref
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from autobrrr.injected.job_state.module_state import ModuleState
from autobrrr.injected.job_state.state_guard import Guarded, StateGuard
from autobrrr.injected.live_torch.torch_types import Abstain


class Holding(nn.Module):
    def __init__(self, held: object) -> None:
        super().__init__()
        self.held = held


class Stored:
    """A descriptor that keeps values in a dict of its own."""

    def __init__(self) -> None:
        self.values: dict[int, int] = {}

    def __get__(self, owner: object, kind: type | None = None) -> int:
        return self.values.get(id(owner), 0)

    def __set__(self, owner: object, value: int) -> None:
        self.values[id(owner)] = value


class Counts:
    count = Stored()


class Remembers:
    @staticmethod
    def seen(kept: list[int] = [0]) -> list[int]:  # noqa: B006
        return kept


class Gives(collections.OrderedDict[str, object]):
    """A mapping that gives out something else than lies in it, and notes what is set."""

    def __getitem__(self, key: str) -> object:
        raise AssertionError("what the mapping gives out was asked for")

    def __setitem__(self, key: str, value: object) -> None:
        super().__setitem__(key, value)
        self.sets = getattr(self, "sets", 0) + 1


class Color(enum.Enum):
    RED = 1


def mail() -> email.message.Message:
    return email.message.Message()


def records() -> np.ndarray:
    return np.rec.array([(0,)], dtype=[("a", int)])


def with_default(kept: list[int]) -> Callable[[], list[int]]:
    return lambda kept=kept: kept


def with_keyword(kept: list[int]) -> Callable[[], list[int]]:
    def read(*, kept: list[int] = kept) -> list[int]:
        return kept

    return read


def with_cell(kept: list[int]) -> Callable[[], list[int]]:
    return lambda: kept


def nested() -> list[list[object]]:
    made: list[object] = [0]
    for _ in range(100):
        made = [made]
    return made  # type: ignore[return-value]


def innermost(made: list[object]) -> list[object]:
    while isinstance(made[0], list):
        made = made[0]
    return made


def first_of(held: object) -> None:
    held[0] += 1  # type: ignore[index]


# What is held; what changes it; what can be seen of it.
CHANGED: dict[str, tuple[Callable[[], object], Callable[..., object], Callable[..., object]]] = {
    "a list in an object of a library's": (mail, lambda it: it.add_header("a", "b"), lambda it: it.items()),
    "a mapping with weak keys": (
        weakref.WeakKeyDictionary, lambda it: it.__setitem__(Color, 1), lambda it: list(it.values())
    ),
    "a list in a mapping of the library": (
        lambda: collections.UserDict(a=[0]), lambda it: first_of(it["a"]), lambda it: it["a"][0]
    ),
    "a record array": (records, lambda it: first_of(it["a"]), lambda it: it["a"][0]),
    "a masked array": (lambda: np.ma.masked_array([0.0]), first_of, lambda it: it.data[0]),
    "a mask": (
        lambda: np.ma.masked_array([0.0], [False]), lambda it: it.__setitem__(0, np.ma.masked),
        lambda it: it.mask[0],
    ),
    "an array of objects": (
        lambda: np.array([0, {}], dtype=object), lambda it: it[1].update(a=1), lambda it: it[1]
    ),
    "an array's place for an object": (lambda: np.array([0, {}], dtype=object), first_of, lambda it: it[0]),
    "a default": (lambda: with_default([0]), lambda it: first_of(it()), lambda it: it()[0]),
    "a keyword's default": (lambda: with_keyword([0]), lambda it: first_of(it()), lambda it: it()[0]),
    "a list that is closed over": (lambda: with_cell([0]), lambda it: first_of(it()), lambda it: it()[0]),
    "a default of a static method": (
        Remembers, lambda it: first_of(it.seen()), lambda it: it.seen()[0]
    ),
    "a partial's argument": (
        lambda: functools.partial(max, [0]), lambda it: first_of(it.args[0]), lambda it: it.args[0][0]
    ),
    "a descriptor's values": (Counts, lambda it: setattr(it, "count", 1), lambda it: it.count),
    "the default of a dict": (
        lambda: collections.defaultdict(with_default([0])), lambda it: first_of(it.default_factory()),
        lambda it: it.default_factory()[0],
    ),
    "a list far down": (nested, lambda it: first_of(innermost(it)), lambda it: innermost(it)[0]),
    "an attribute of a member": (
        lambda: Color.RED, lambda it: setattr(it, "seen", 1), lambda it: getattr(it, "seen", 0)
    ),
    "which default a dict has": (
        lambda: collections.defaultdict(list), lambda it: setattr(it, "default_factory", int),
        lambda it: it.default_factory,
    ),
    "an attribute of a mapping": (
        lambda: collections.OrderedDict(a=1), lambda it: setattr(it, "seen", 1),
        lambda it: getattr(it, "seen", 0),
    ),
    "what lies in a mapping that gives out something else": (
        lambda: Gives(a=1), lambda it: it.update(b=2), lambda it: (list(dict.items(it)), it.sets)
    ),
    "an item of a mapping in order": (
        lambda: collections.OrderedDict(a=1), lambda it: it.update(a=2), lambda it: list(it.items())
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_what_a_forward_changes_is_put_back_and_named(name: str) -> None:
    make, change, see = CHANGED[name]
    held = make()
    before = copy.deepcopy(see(held))
    state = ModuleState(torch, [Holding(held)], [], set())  # type: ignore[list-item]

    change(held)
    assert see(held) != before, "nothing was changed"

    assert state.restore() != []
    assert see(held) == before


REFUSED: dict[str, Callable[[], object]] = {
    "a raw storage": lambda: torch.zeros(4).untyped_storage(),
    "a queue": queue.Queue,
    "a simple queue": queue.SimpleQueue,
    "a counter": itertools.count,
    "an iterator": lambda: iter([1]),
    "a generator": lambda: (each for each in ()),
    "an iterator over an array": lambda: np.zeros(2).flat,
    "a state of a generator": lambda: np.random.PCG64(1),
    "thread-local values": threading.local,
    "a context variable": lambda: contextvars.ContextVar("a"),
    "memory of C": lambda: (ctypes.c_int * 1)(0),
    "mapped memory": lambda: mmap.mmap(-1, 4096),
    "a view of memory": lambda: memoryview(bytearray(4)),
    "an array of the interpreter's": lambda: array.array("q", [0]),
    "an error": lambda: ValueError("a"),
    "a cache": lambda: functools.lru_cache(Fraction),
    "records with objects": lambda: np.zeros(1, dtype=[("a", object)]),
    "a counter in a default": lambda: collections.defaultdict(itertools.count().__next__),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_put_back_is_refused_before_anything_runs(name: str) -> None:
    with pytest.raises(Abstain, match="can't be put back after a replay"):
        ModuleState(torch, [Holding([REFUSED[name]()])], [], set())  # type: ignore[list-item]


KEPT: dict[str, Callable[[], object]] = {
    "types of torch": lambda: [torch.float32, torch.device("cpu"), torch.Size([1]), torch.strided],
    "a finfo": lambda: torch.finfo(torch.float32),
    "a distribution": lambda: torch.distributions.Normal(torch.zeros(1), torch.ones(1)),
    "a handle of a hook": lambda: nn.Linear(1, 1).register_forward_hook(print),
    "an operator": lambda: torch.ops.aten.add.Tensor,
    "a graph": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(1, 1), nn.ReLU())),
    "a script": lambda: torch.jit.script(nn.Linear(1, 1)),
    "an optimizer": lambda: torch.optim.Adam(nn.Linear(1, 1).parameters()),
    "a loader and where it stands": lambda: iter(torch.utils.data.DataLoader([1, 2])),  # type: ignore[arg-type]
    "a store": torch.distributed.HashStore,
    "functions": lambda: [nn.functional.gelu, torch.tanh, np.sum, len, [].append, math_like],
    "a logger": lambda: logging.getLogger("a"),
    "an expression": lambda: re.compile("a"),
    "a path": lambda: pathlib.Path("a"),
    "a tokenizer's pairs of words": lambda: {(str(each), "b"): each for each in range(50_000)},
    "rows of numbers": lambda: [(each, (1.5 * each,)) for each in range(5_000)],
    "a fraction": lambda: Fraction(1, 2),
    "locks": lambda: [threading.Lock(), threading.RLock(), threading.Condition(), threading.Event()],
    "a weak reference": lambda: weakref.ref(Color),
    "a proxy": lambda: types.MappingProxyType({}),
    "a module": lambda: functools,
    "NumPy's scalars": lambda: [np.float32(1), np.dtype("f4"), np.add, np.zeros(2)],
    "memory that is only read": lambda: memoryview(b"a"),
    "a context": torch.no_grad,
    "a signature": lambda: inspect.signature(mail),
}


def math_like(value: float) -> float:
    return value


@pytest.mark.parametrize("name", KEPT)
def test_what_models_commonly_hold_is_no_reason(name: str) -> None:
    held = KEPT[name]()
    state = ModuleState(torch, [Holding([held])], [], set())  # type: ignore[list-item]
    str(held), hash(held) if isinstance(held, pathlib.Path) else None
    assert state.restore() == []


def resized(tensor: torch.Tensor) -> None:
    tensor.resize_(tensor.numel() + 100)


def emptied(tensor: torch.Tensor) -> None:
    tensor.resize_(0)
    tensor.untyped_storage().resize_(0)


def in_place(tensor: torch.Tensor) -> None:
    (tensor if tensor._base is None else tensor._base).add_(1)


def of_values(tensor: torch.Tensor) -> None:
    tensor._values().add_(1)


def of_rows(tensor: torch.Tensor) -> None:
    tensor.values().add_(1)


TENSORS: dict[str, tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor], None]]] = {
    "a larger one": (lambda: torch.ones(3), resized),
    "an empty one": (lambda: torch.ones(3), emptied),
    "an expanded one": (lambda: torch.zeros(1).expand(4), in_place),
    "an expanded row": (lambda: torch.zeros(3)[1:].expand(2, 2), in_place),
    "a sliding window": (lambda: torch.arange(6.0).unfold(0, 3, 1), in_place),
    "a transposed one": (lambda: torch.arange(6.0).view(2, 3).t(), in_place),
    "a sparse one": (lambda: torch.eye(3).to_sparse(), of_values),
    "a sparse one in rows": (lambda: torch.eye(3).to_sparse_csr(), of_rows),
    "another by .data": (lambda: torch.ones(3), lambda it: setattr(it, "data", torch.zeros(3))),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_is_put_back_as_it_lay(name: str) -> None:
    make, change = TENSORS[name]
    tensor, before = make(), make()
    where = tensor.stride() if tensor.layout == torch.strided else None
    with StateGuard(torch, Guarded([Holding(tensor)], []), trial=True) as guard:  # type: ignore[list-item]
        change(tensor)

    assert guard.writes
    assert torch.equal(tensor.to_dense(), before.to_dense())
    assert where is None or tensor.stride() == where
    if where is not None:
        assert tensor.untyped_storage().nbytes() == before.untyped_storage().nbytes()


def test_a_tensor_of_another_layout_is_refused() -> None:
    nest = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with (
        pytest.raises(Abstain, match="layout jagged"),
        StateGuard(torch, Guarded([Holding(nest)], [])),  # type: ignore[list-item]
    ):
        pass
