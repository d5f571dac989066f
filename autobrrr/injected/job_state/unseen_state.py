"""What an object keeps where Python can't look: in C code, in another thread, in its place in a row.

Python's own classes keep all that they have in attributes, slots, and what a container holds. What is made
in C, by Cython too, is known not to change, by the lists below, or may have changed without anyone seeing it.
"""

from __future__ import annotations

import io
import mmap
import struct
import types
from collections import OrderedDict, defaultdict, deque
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)

from ..job_code.held_objects import ASKING, own_slots
from ..job_code.installed_code import home_of, package_of

ATOMS = (int, float, complex, str, bytes, range, slice, type(None), type(Ellipsis))
_SEEN_BASES = (object, dict, list, tuple, set, frozenset, deque, OrderedDict, defaultdict)
_UNCHANGING = frozenset((  # packages whose objects made in C stay as they are
    "PIL", "_abc", "_collections", "_decimal", "_functools", "_regex", "_sre", "_struct",
    "_weakref", "abc", "ast", "collections", "datetime", "decimal", "enum", "pyarrow", "re",
    "sentencepiece", "tokenizers", "torchvision", "types", "typing", "uuid", "weakref", "zoneinfo",
))  # fmt: skip
# Of these packages and modules only such objects are known not to change.
_FIXED: dict[str, tuple[str, ...]] = {
    "builtins": (
        "ImagingCore",  # of PIL
        "NotImplementedType", "PyCapsule", "cell", "classmethod_descriptor", "code", "getset_descriptor",
        "instancemethod", "mappingproxy", "member_descriptor", "method_descriptor", "super",
        "wrapper_descriptor",
    ),
    "functools": ("partial", "partialmethod", "cached_property", "singledispatchmethod"),
    "numpy": ("generic", "dtype", "ufunc", "_ArrayFunctionDispatcher"),
    "pandas": (
        "BaseOffset", "C_NAType", "IntervalMixin", "SparseIndex", "_NaT", "_Period", "_Timedelta",
        "_Timestamp",
    ),
    "_thread": ("lock", "RLock"),
}  # fmt: skip
_CHANGING = {"torch": ("StorageBase", "UntypedStorage")}  # of these only such objects do
_LOOKED_INTO = (
    *ASKING, type, property, staticmethod, classmethod, FunctionType, MethodType, BuiltinFunctionType,
)  # fmt: skip
_HEAP_TYPE = 1 << 9
_MANAGED_DICT = 1 << 4  # from CPython 3.11 on: not in what an object is said to take
_POINTER_BYTES = struct.calcsize("P")
_FED = (  # by other threads or processes
    ("queue", "Queue"),
    ("_queue", "SimpleQueue"),
    ("multiprocessing.queues", "Queue"),
    ("threading", "Thread"),
    ("concurrent.futures._base", "Executor"),
)
_PYBIND = "pybind11_builtins"
_CYTHON = "_cython_"  # what all modules made by it share: types of functions


def moves_on(value: object) -> bool:
    """Whether a value stands somewhere in what it gives and shows that nowhere, or is fed meanwhile."""
    if any((home_of(kind), kind.__name__) in _FED for kind in type(value).__mro__):
        return True
    following = getattr(type(value), "__next__", None)
    hidden = following is not None and not isinstance(following, FunctionType)
    return hidden and not isinstance(value, io.IOBase)


def may_change_unseen(value: object) -> bool:
    """Whether a value keeps what may change where only its own C code sees it."""
    if isinstance(value, memoryview | mmap.mmap):
        return not _is_fixed(value)
    if moves_on(value):
        return True
    kind = type(value)
    base = _made_in_c(kind)
    if issubclass(base, BaseException):
        return True
    if _is_seen(base) or issubclass(base, _LOOKED_INTO):
        return False
    if home_of(base) == _PYBIND:  # what all classes of a way to make them are built on
        base = kind.__mro__[kind.__mro__.index(base) - 1]
    if home_of(base).startswith(_CYTHON):
        return False
    home, names = package_of(base), {each.__name__ for each in base.__mro__}
    if home in _CHANGING:
        return not names.isdisjoint(_CHANGING[home])
    return names.isdisjoint(_FIXED[home]) if home in _FIXED else home not in _UNCHANGING


def _is_seen(base: type) -> bool:
    return base in _SEEN_BASES or issubclass(base, (*ATOMS, ModuleType, types.SimpleNamespace))


def _is_fixed(memory: memoryview | mmap.mmap) -> bool:
    try:
        return memoryview(memory).readonly and isinstance(getattr(memory, "obj", b""), bytes)
    except ValueError:  # closed
        return True


def _made_in_c(kind: type) -> type:
    """The nearest of its classes that is made in C."""
    return next((each for each in kind.__mro__ if _is_made_in_c(each)), object)


def _is_made_in_c(kind: type) -> bool:
    """Python's are made at runtime, have no methods of C, and a name for each part of their objects."""
    if not kind.__flags__ & _HEAP_TYPE or _nameless_bytes(kind):
        return True
    return any(
        isinstance(each, (MethodDescriptorType, WrapperDescriptorType)) and each.__objclass__ is kind
        for each in vars(kind).values()
    )


def _nameless_bytes(kind: type) -> int:
    """What a class adds to its objects, beside attributes, slots and a place for weak references."""
    base = kind.__base__ or object
    parts = len(own_slots(kind))
    parts += bool(kind.__dictoffset__ and not base.__dictoffset__ and not kind.__flags__ & _MANAGED_DICT)
    parts += kind.__weakrefoffset__ > 0 == base.__weakrefoffset__
    return kind.__basicsize__ - base.__basicsize__ - parts * _POINTER_BYTES
