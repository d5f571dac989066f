"""What forward code can call without a name that leads there: methods and functions of all that it holds.

In: objects, names of attributes that code takes from anything. Out: functions that may be called so.
"""

from __future__ import annotations

import functools
from collections import deque
from itertools import islice
from types import FunctionType, MethodType, ModuleType

from ..live_torch.torch_types import is_module, is_tensor
from .installed_code import home_of, is_library

_MAX_OBJECTS = 20_000
_MAX_PARTS = 10_000  # looked at in one container
# fmt: off
_NEVER_IMPLICIT = frozenset((
    "__init__", "__new__", "__del__", "__repr__", "__str__", "__reduce__", "__reduce_ex__", "__getstate__",
    "__setstate__", "__init_subclass__", "__class_getitem__", "__post_init__", "__deepcopy__", "__copy__",
))
# fmt: on


def is_implicit(name: str) -> bool:
    """Whether a method of this name can be called by an expression that does not name it."""
    return name.startswith("__") and name.endswith("__") and name not in _NEVER_IMPLICIT


class Reach:
    """Grows with the objects that are held and the attribute names that code uses."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._seen: set[int] = set()
        self._held: list[object] = []  # so that an id stays its own
        self._methods: dict[str, list[tuple[object, object]]] = {}
        self._classes: set[tuple[type, type]] = set()
        self._used: set[str] = set()
        self._called: list[tuple[object, object | None]] = []

    def attribute(self, name: str) -> None:
        """Code takes an attribute of this name from something."""
        if name not in self._used:
            self._used.add(name)
            self._called += self._methods.get(name, [])

    def into(self, thing: object) -> None:
        """Code holds a thing, and through it all that it holds."""
        coming: deque[tuple[object, int]] = deque([(thing, 0)])
        while coming and len(self._held) < _MAX_OBJECTS:
            held, depth = coming.popleft()
            if isinstance(held, str | bytes | int | float | None) or id(held) in self._seen:
                continue
            self._seen.add(id(held))
            self._held.append(held)
            coming += ((part, depth + 1) for part in self._parts(held, depth))

    def newly_called(self) -> list[tuple[object, object | None]]:
        """Functions found since the last look, with the object whose methods they are."""
        called, self._called = self._called, []
        return called

    def _parts(self, held: object, depth: int) -> list[object]:
        if is_tensor(held, self._torch) or isinstance(held, type | ModuleType):
            return []
        if isinstance(held, dict):
            return list(islice(held.values(), _MAX_PARTS))
        if isinstance(held, list | tuple | set | frozenset | deque):
            return list(islice(held, _MAX_PARTS))
        if isinstance(held, functools.partial):
            return [held.func, *held.args, *held.keywords.values()]
        if isinstance(held, FunctionType | MethodType):
            if depth > 1:  # in a container: which one is called shows no name
                self._called.append((held, None))
            return [held.__self__] if isinstance(held, MethodType) else []
        kind = type(held)
        if is_library(home_of(kind)) and not is_module(held, self._torch):
            return []
        self._class(kind, held)
        return list(getattr(held, "__dict__", {}).values())

    def _class(self, kind: type, held: object) -> None:
        """The methods of the user's classes; special ones are called without their name."""
        for each in kind.__mro__:
            if is_library(home_of(each)) or (each, kind) in self._classes:
                continue
            self._classes.add((each, kind))
            for name, method in vars(each).items():
                if isinstance(method, FunctionType | property | staticmethod | classmethod):
                    self._methods.setdefault(name, []).append((method, held))
                    if is_implicit(name) or name in self._used:
                        self._called.append((method, held))
                elif not is_library(home_of(type(method))):  # a descriptor of the user's own
                    for reads in ("__get__", "__set__", "__delete__"):
                        self._called.append((getattr(type(method), reads, None), method))
