"""What an object keeps where Python can't look: in C code, in another thread, in its place in a row.

Python's own classes keep all that they have in attributes, slots, and what a container holds. What is made in
C is known not to change, by the lists below, or may have changed without anyone seeing it.
"""

from __future__ import annotations

import functools
import io
import mmap
import types
from collections import OrderedDict, defaultdict, deque
from types import (
    BuiltinFunctionType,
    FunctionType,
    MappingProxyType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)

ATOMS = (int, float, complex, str, bytes, range, slice, type(None), type(Ellipsis))
_SEEN_BASES = (object, dict, list, tuple, set, frozenset, deque, OrderedDict, defaultdict)
_UNCHANGING = frozenset((  # packages whose objects made in C stay as they are, or are asked otherwise
    "PIL", "_abc", "_collections", "_decimal", "_functools", "_operator", "_sre", "_struct", "_weakref",
    "abc", "builtins", "collections", "datetime", "decimal", "functools", "numpy", "operator",
    "pyarrow", "re", "sentencepiece", "tokenizers", "torch", "torchvision", "types", "typing", "uuid",
    "weakref", "zoneinfo",
))  # fmt: skip
_SEEN_BUILTINS = (staticmethod, classmethod, property, functools.partial, MappingProxyType)
_HEAP_TYPE = 1 << 9
_CHANGING = ("memoryview", "generator", "coroutine")  # of "builtins"
_FED = (  # by other threads or processes
    ("queue", "Queue"),
    ("_queue", "SimpleQueue"),
    ("multiprocessing.queues", "Queue"),
    ("threading", "Thread"),
    ("concurrent.futures._base", "Executor"),
)
# Of these packages and modules only such objects are known not to change.
_FIXED: dict[str, tuple[str, ...]] = {
    "builtins": (
        "NotImplementedType", "PyCapsule", "cell", "classmethod_descriptor", "code", "getset_descriptor",
        "instancemethod", "mappingproxy", "member_descriptor", "method_descriptor", "super",
        "wrapper_descriptor",
    ),
    "functools": ("partial", "partialmethod", "cached_property", "singledispatchmethod"),
    "numpy": ("generic", "dtype", "ufunc", "_ArrayFunctionDispatcher"),
    "_thread": ("lock", "RLock"),
}  # fmt: skip
_FIXED_BESIDE = frozenset(("_regex", "ast", "enum"))
_PYBIND = "pybind11_builtins"


def slots_of(kind: type) -> tuple[str, ...]:
    """Names of what its objects keep beside their attributes."""
    return tuple(name for each in kind.__mro__ for name in own_slots(each))


def own_slots(kind: type) -> tuple[str, ...]:
    """Those that a class adds to its parents'."""
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    mangled = kind.__name__.lstrip("_")
    return tuple(
        f"_{mangled}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    )


def moves_on(value: object) -> bool:
    """Whether a value stands somewhere in what it gives and shows that nowhere, or is fed meanwhile."""
    if any((kind.__module__, kind.__name__) in _FED for kind in type(value).__mro__):
        return True
    following = getattr(type(value), "__next__", None)
    hidden = following is not None and not isinstance(following, FunctionType)
    return hidden and not isinstance(value, io.IOBase)


def is_opaque(value: object) -> bool:
    """Whether a value keeps what may change where only its own C code sees it."""
    if isinstance(value, (type, FunctionType, MethodType, BuiltinFunctionType, *_SEEN_BUILTINS)):
        return False
    base = _made_in_c(type(value))
    if _is_seen(base):
        return False
    if base.__module__ == "numpy" and base.__name__ == "memmap":
        return bool(value.flags.writeable)  # type: ignore[attr-defined]
    if base.__module__ == "builtins":
        return base.__name__ in _CHANGING
    return base.__module__.partition(".")[0] not in _UNCHANGING


def may_change_unseen(value: object) -> bool:
    """The same by a shorter list, for what code may do to the value itself and not to copies of it."""
    if isinstance(value, memoryview | mmap.mmap):
        return not _is_read_only(value)
    if moves_on(value):
        return True
    kind = type(value)
    base = _made_in_c(kind)
    if issubclass(base, BaseException):
        return True
    if _is_seen(base) or issubclass(base, (type, property, staticmethod, classmethod)):
        return False
    top = base.__module__.partition(".")[0]
    if base.__module__ == _PYBIND:  # what all classes of a way to make them are built on
        top = kind.__mro__[kind.__mro__.index(base) - 1].__module__.partition(".")[0]
    if top in _FIXED:
        return all(each.__name__ not in _FIXED[top] for each in base.__mro__)
    if top == "torch":
        return base.__name__ in ("StorageBase", "UntypedStorage")
    return top not in _UNCHANGING and top not in _FIXED_BESIDE


def _is_seen(base: type) -> bool:
    return base in _SEEN_BASES or issubclass(base, (*ATOMS, ModuleType, types.SimpleNamespace, BaseException))


def _is_read_only(memory: memoryview | mmap.mmap) -> bool:
    try:
        return memoryview(memory).readonly
    except ValueError:  # closed
        return True


def _made_in_c(kind: type) -> type:
    """The nearest of its classes that is made in C."""
    return next((each for each in kind.__mro__ if _is_made_in_c(each)), object)


def _is_made_in_c(kind: type) -> bool:
    """Python's classes are made at runtime, and have no methods of C."""
    if not kind.__flags__ & _HEAP_TYPE:
        return True
    return any(
        isinstance(each, (MethodDescriptorType, WrapperDescriptorType)) and each.__objclass__ is kind
        for each in vars(kind).values()
    )
