"""The Python state of a module tree: attributes, containers, arrays, plain objects, class attributes.

It is copied when the snapshot is made (shallow, by identity); `restore` puts back what changed and names
it. Tensors and random generators that it meets on the way are handed out, for the guard to keep.
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict, deque
from collections.abc import Iterator, MutableMapping
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Protocol, cast

from ..live_torch.torch_types import Abstain, Module, Tensor, is_module, is_tensor
from .effects import is_opaque, object_effect
from .installed_code import is_library, is_standard
from .rng_state import is_generator

_ATOMS = frozenset((int, float, complex, bool, str, bytes, type(None)))
_HOLDERS = ("SimpleNamespace", "Namespace", "UserDict", "UserList", "ChainMap")
_MAX_DEPTH = 24
_MAX_OBJECTS = 10_000  # beside the modules' own
_MAX_ARRAY_BYTES = 1 << 26
_CALLED = (FunctionType, functools.partial, BuiltinFunctionType, MethodType, MethodWrapperType)
_EMPTY = object()  # a variable around a function that has no value yet


class _Array(Protocol):
    """What is used of NumPy's arrays."""

    def tobytes(self) -> bytes: ...
    def __setitem__(self, place: object, value: object) -> None: ...


class ModuleState:
    """A snapshot of the Python state below some modules.

    Args:
        others: Objects outside the tree that its code can reach (globals of forward functions).
        parameters: Ids of parameters: kept by the version check instead.

    Raises:
        Abstain: there is more of it than can be kept.
    """

    def __init__(
        self, torch: ModuleType, modules: list[Module], others: list[tuple[str, object]], parameters: set[int]
    ) -> None:
        self.tensors: list[Tensor] = []
        self.generators: list[object] = []
        self._torch = torch
        self._parameters = parameters
        self._seen: set[int] = set()
        self._held = 0
        self._dicts: list[tuple[str, MutableMapping[object, object], dict[object, object]]] = []
        self._lists: list[tuple[str, list[object] | deque[object], list[object]]] = []
        self._sets: list[tuple[str, set[object], set[object]]] = []
        self._bytes: list[tuple[str, bytearray, bytes]] = []
        self._arrays: list[tuple[str, _Array, _Array]] = []
        self._slots: list[tuple[str, object, dict[str, object]]] = []
        self._classes: list[tuple[type, dict[str, object]]] = []
        self._cells: list[tuple[str, CellType, object]] = []
        for module in modules:
            self._module(module, type(module).__name__)
        for name, thing in others:
            self._visit(thing, name, 0)

    def restore(self) -> list[str]:
        """Put back what changed; the names of it."""
        changed: list[str] = []
        for path, mapping, saved in self._dicts:
            names = dict_changes(mapping, saved)
            if names:
                changed += [f"{path}.{name}" for name in names if name != "training"]
                mapping.clear()
                mapping.update(saved)
        for path, items, kept in self._lists:
            if len(items) != len(kept) or any(new is not old for new, old in zip(items, kept, strict=True)):
                changed.append(path)
                items.clear()
                items.extend(kept)
        for path, members, kept_members in self._sets:
            if members != kept_members:
                changed.append(path)
                members.clear()
                members.update(kept_members)
        for path, raw, kept_raw in self._bytes:
            if raw != kept_raw:
                changed.append(path)
                raw[:] = kept_raw
        for path, array, kept_array in self._arrays:
            if array.tobytes() != kept_array.tobytes():
                changed.append(path)
                array[...] = kept_array
        for path, thing, parts in self._slots:
            changed += [f"{path}.{name}" for name in _restore_slots(thing, parts)]
        for path, cell, content in self._cells:
            if content_of(cell) is not content:
                changed.append(path)
                cell.cell_contents = content
        for kind, attributes in self._classes:
            changed += restore_class(kind, attributes)
        return changed

    def _module(self, root: Module, path: str) -> None:
        for module in root.modules():
            if id(module) in self._seen:
                continue
            self._seen.add(id(module))
            kind = type(module)
            where = path if module is root else f"{path}>{kind.__name__}"
            attributes = cast("MutableMapping[object, object]", vars(module))
            self._dicts.append((where, attributes, dict(attributes)))
            for name, value in attributes.items():
                if type(value) not in _ATOMS and name != "_modules":
                    self._visit(value, f"{where}.{name}", 0)
            submodules = attributes["_modules"]
            self._dicts.append((where, cast("MutableMapping[object, object]", submodules), dict(submodules)))  # type: ignore[call-overload]
            self._class(kind)

    def _class(self, kind: type) -> None:
        """What the instances of a class share; of the user's parents too, and what theirs hold."""
        for each in kind.__mro__:
            library = is_library(each.__module__)
            if id(each) in self._seen or (library and each is not kind):
                continue
            self._seen.add(id(each))
            self._classes.append((each, dict(vars(each))))
            if library:
                continue
            for name, value in vars(each).items():
                if type(value) not in _ATOMS and not _is_machinery(value):
                    self._visit(value, f"{each.__name__}.{name}", 0)

    def _visit(self, value: object, path: str, depth: int) -> None:
        kind = type(value)
        if kind in _ATOMS or id(value) in self._seen:
            return
        if (kind is dict or kind is OrderedDict) and not value:  # most of what a module holds
            self._seen.add(id(value))
            self._dicts.append((path, cast("MutableMapping[object, object]", value), {}))
            return
        if is_tensor(value, self._torch):
            self._seen.add(id(value))
            if id(value) not in self._parameters:
                self.tensors.append(value)
            self._attributes(value, path)
            return
        if is_module(value, self._torch):
            self._module(value, path)
            return
        if isinstance(value, type):
            self._class(value)
            return
        self._seen.add(id(value))
        self._held += depth > 0
        if self._held > _MAX_OBJECTS or depth > _MAX_DEPTH:
            raise Abstain("the modules hold more objects than can be put back after a replay")
        if isinstance(value, dict):
            self._dicts.append((path, value, dict(value)))
            self._inside(value.values(), path, depth)
        elif isinstance(value, list | deque):
            self._lists.append((path, value, list(value)))
            self._inside(value, path, depth)
        elif isinstance(value, set):
            self._sets.append((path, value, set(value)))
        elif isinstance(value, bytearray):
            self._bytes.append((path, value, bytes(value)))
        elif isinstance(value, tuple | frozenset):
            self._inside(value, path, depth)
        elif kind in _CALLED:
            self._called(value, path, depth)
        elif is_generator(value, self._torch):
            self.generators.append(value)
        elif (kind.__module__, kind.__name__) == ("numpy", "ndarray"):
            self._array(value, path)
        elif is_opaque(value):
            spoken = f"{kind.__module__}.{kind.__qualname__}"
            raise Abstain(f"{path} is a {spoken}, whose state can't be put back after a replay")
        if not is_library(kind.__module__) or kind.__name__ in _HOLDERS:
            self._plain(value, path, depth)
        elif object_effect(value) is None and not is_standard(kind.__module__):
            self._attributes(value, path)

    def _attributes(self, value: object, path: str) -> None:
        """What was set on a tensor, or on an object of a library's, itself."""
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        if isinstance(attributes, dict):
            self._dicts.append((path, attributes, dict(attributes)))

    def _plain(self, value: object, path: str, depth: int) -> None:
        """An object of a class of the user's, or a mere holder: its attributes, its slots, its class."""
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._dicts.append((path, attributes, dict(attributes)))
            for name, part in attributes.items():
                self._visit(part, f"{path}.{name}", depth + 1)
        parts = _slots_of(value)
        if parts is not None:
            self._slots.append((path, value, parts))
            for name, part in parts.items():
                self._visit(part, f"{path}.{name}", depth + 1)
        self._class(type(value))

    def _called(self, value: object, path: str, depth: int) -> None:
        """A function of the user's with its attributes and what it closes over; whose method it is."""
        if isinstance(value, FunctionType):
            if is_library(str(value.__globals__.get("__name__"))):
                return
            attributes = cast("MutableMapping[object, object]", value.__dict__)
            self._dicts.append((path, attributes, dict(attributes)))
            self._inside(attributes.values(), path, depth)
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                self._cells.append((f"{path}>{name}", cell, content_of(cell)))
        elif isinstance(value, functools.partial):
            self._inside((value.func, *value.args, *value.keywords.values()), path, depth)
        else:
            owner = getattr(value, "__self__", None)
            function = getattr(value, "__func__", None)
            if not isinstance(owner, ModuleType):
                self._inside((owner, function), path, depth)

    def _array(self, value: object, path: str) -> None:
        """An array of NumPy's, which forward code may count in."""
        array = cast("_Array", value)
        if not value.flags.writeable:  # type: ignore[attr-defined]
            return
        if value.nbytes > _MAX_ARRAY_BYTES:  # type: ignore[attr-defined]
            raise Abstain(f"{path} is an array too large to be put back after a replay")
        self._arrays.append((path, array, value.copy()))  # type: ignore[attr-defined]

    def _inside(self, values: object, path: str, depth: int) -> None:
        for value in cast("Iterator[object]", values):
            if type(value) not in _ATOMS:
                self._visit(value, path, depth + 1)


def content_of(cell: CellType) -> object:
    """What a variable around a function is; one thing of its own where it has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _is_machinery(value: object) -> bool:
    """Of a class: what its attributes and methods work by, functions apart."""
    return hasattr(type(value), "__get__") and not isinstance(value, FunctionType)


def dict_changes(mapping: MutableMapping[object, object], saved: dict[object, object]) -> list[object]:
    """Keys that were set, added, taken away or moved."""
    if not mapping and not saved:
        return []
    if (
        len(mapping) == len(saved)
        and all(map(operator.is_, mapping.values(), saved.values()))
        and all(map(operator.is_, mapping, saved))
    ):
        return []
    missing = object()
    changed = [
        key for key in {**saved, **mapping} if mapping.get(key, missing) is not saved.get(key, missing)
    ]
    return changed or [key for key, place in zip(saved, mapping, strict=False) if key is not place]


def restore_class(kind: type, saved: dict[str, object]) -> list[str]:
    changed = []
    now = dict(vars(kind))
    for name in {**saved, **now}:
        if name in ("__dict__", "__weakref__", "__abstractmethods__", "_abc_impl"):
            continue
        if name not in saved:
            delattr(kind, name)
        elif now.get(name) is not saved[name]:
            setattr(kind, name, saved[name])
        else:
            continue
        changed.append(f"{kind.__name__}.{name}")
    return changed


def _slots_of(thing: object) -> dict[str, object] | None:
    """What lies in the slots of an object; None where its classes have none."""
    names = [
        f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") else name
        for kind in type(thing).__mro__
        if not is_library(kind.__module__)
        for name in _listed(vars(kind).get("__slots__", ()))
        if name not in ("__dict__", "__weakref__")
    ]
    missing = object()
    found = {name: getattr(thing, name, missing) for name in names}
    return {name: value for name, value in found.items() if value is not missing} if names else None


def _listed(slots: object) -> list[str]:
    return [slots] if isinstance(slots, str) else list(cast("Iterator[str]", slots))


def _restore_slots(thing: object, parts: dict[str, object]) -> list[str]:
    now = _slots_of(thing) or {}
    changed = [name for name in {**parts, **now} if name not in now or now[name] is not parts.get(name)]
    for name in changed:
        if name in parts:
            object.__setattr__(thing, name, parts[name])
        else:
            object.__delattr__(thing, name)
    return changed
