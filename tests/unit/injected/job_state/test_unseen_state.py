"""What may change where only C code sees it: told by the parts of an object that no name leads to."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import enum
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from autobrrr.injected.job_code.installed_code import home_of, is_library
from autobrrr.injected.job_state.module_state import ModuleState
from autobrrr.injected.job_state.unseen_state import _nameless_bytes, may_change_unseen
from autobrrr.injected.live_torch.torch_types import Abstain

HEAP_TYPE, BASE_TYPE = 1 << 9, 1 << 10


class _Spec(ctypes.Structure):
    """`PyType_Spec` of CPython."""

    _fields_: ClassVar = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    ]


KEPT: list[object] = []  # what C goes on reading


def made_in_c(name: str, parts: int) -> type[Any]:
    """A class as Cython makes one: no method of C, and parts that only its own code finds."""
    end = (ctypes.c_void_p * 2)()
    size = object.__basicsize__ + parts * ctypes.sizeof(ctypes.c_void_p)
    spec = _Spec(name.encode(), size, 0, HEAP_TYPE | BASE_TYPE, ctypes.addressof(end))
    KEPT.extend((end, spec))
    make = ctypes.pythonapi.PyType_FromSpec
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p]
    return make(ctypes.addressof(spec))  # type: ignore[no-any-return]


class Slotted:
    __slots__ = ("__private", "__weakref__", "one")


class SlottedBelow(Slotted):
    __slots__ = ("__dict__", "two")


@dataclasses.dataclass(slots=True)
class Record:
    one: int = 0


class Pair(NamedTuple):
    one: int = 0
    two: int = 0


class Number(int):
    """With attributes behind its digits."""


class Mixed(SlottedBelow, enum.Enum):
    ONE = 1


class Seen(collections.OrderedDict[str, int]):
    """A container of C's, with attributes."""


PYTHONS: list[Callable[[], object]] = [
    Slotted, SlottedBelow, Record, Pair, Number, Seen, lambda: Mixed.ONE, types.SimpleNamespace,
    lambda: weakref.ref(Record), dataclasses.field, lambda: nn.Linear(1, 1), lambda: np.float32(1),
]  # fmt: skip


@pytest.mark.parametrize("make", PYTHONS)
def test_what_python_keeps_has_a_name(make: Callable[[], object]) -> None:
    assert not may_change_unseen(make())


def test_no_class_that_python_has_made_keeps_what_has_no_name() -> None:
    """Of all that are there; those that have methods of Python's."""
    kinds = [each for each in _below(object, set()) if each.__flags__ & HEAP_TYPE]
    kinds = [each for each in kinds if "__pyx_vtable__" not in vars(each)]  # of Cython
    pythons = [each for each in kinds if types.FunctionType in map(type, vars(each).values())]
    assert len(pythons) > 1000
    assert not list(filter(_nameless_bytes, pythons))


def _below(kind: type, found: set[type]) -> set[type]:
    for each in type.__subclasses__(kind):
        if each not in found:
            found.add(each)
            _below(each, found)
    return found


@pytest.mark.parametrize("below", [False, True])
def test_what_c_keeps_leaves_models_alone(*, below: bool) -> None:
    kind = made_in_c("settings._fast.State", 2)
    held = type("State", (kind,), {})() if below else kind()
    assert _nameless_bytes(kind) == 2 * ctypes.sizeof(ctypes.c_void_p)
    assert may_change_unseen(held)
    model = nn.Linear(1, 1)
    model.held = [held]  # type: ignore[assignment]
    with pytest.raises(Abstain, match="can't be put back after a replay"):
        ModuleState(torch, [model], [], set())  # type: ignore[list-item]


def test_a_class_of_c_that_adds_nothing_has_nothing_to_hide() -> None:
    assert not may_change_unseen(made_in_c("settings._fast.Plain", 0)())


def test_a_class_is_the_interpreters_only_where_it_has_been_there_from_the_start() -> None:
    assert [home_of(each) for each in (int, np.ndarray, Record)] == ["builtins", "numpy", __name__]
    claims = made_in_c("builtins.cell", 1)
    assert home_of(claims) == ""
    assert may_change_unseen(claims())
    assert not may_change_unseen((lambda: claims).__closure__[0])  # type: ignore[index]


class Misplaced:
    """Its module is each object's own, as functions of Cython have it."""

    __module__ = property(lambda self: __name__)  # type: ignore[assignment]


def test_a_class_that_gives_no_module_is_looked_into_all_the_same() -> None:
    assert home_of(Misplaced) == ""
    held, model = Misplaced(), nn.Linear(1, 1)
    held.seen = 0  # type: ignore[attr-defined]
    model.held = held  # type: ignore[assignment]
    kept = ModuleState(torch, [model], [], set())  # type: ignore[list-item]
    held.seen = 1  # type: ignore[attr-defined]
    assert kept.restore() == ["Linear.held.seen"]
    assert held.seen == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("memory", "is_seen"),
    [(b"a", True), (bytearray(b"a"), False), (memoryview(bytearray(b"a")).toreadonly(), False)],
)
def test_a_view_is_fixed_where_what_it_shows_is(memory: bytes, *, is_seen: bool) -> None:
    assert may_change_unseen(memoryview(memory)) != is_seen


def test_a_package_that_is_installed_but_not_imported_is_not_the_jobs_own() -> None:
    name = next(each for each in ("mkdocs", "selenium", "textual_serve") if each not in sys.modules)
    assert is_library(name)
    assert not is_library("no_such_package_at_all")


def test_functions_made_by_cython_keep_nothing() -> None:
    library = pytest.importorskip("pandas._libs.lib")
    assert type(library.infer_dtype).__name__ == "cython_function_or_method"
    assert not may_change_unseen(library.infer_dtype)
