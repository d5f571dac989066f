"""The Python state of a module tree: attributes, slots, containers, arrays, functions, class attributes.

It is copied when the snapshot is made (shallow, by identity); `restore` puts back what changed and names
it. Tensors and random generators that it meets on the way are handed out, for the guard to keep. What is
known neither to stay as it is nor how to be put back is a reason to leave all of it alone.
"""

from __future__ import annotations

import functools
import gc
import operator
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, MutableMapping
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Protocol, cast

from ..job_code.effects import Effect, Libraries, object_effect
from ..job_code.held_objects import ASKING, EMPTY, content_of, in_slot, own_slots, runs_modules
from ..job_code.installed_code import home_of, is_library, is_own, package_of
from ..live_torch.torch_types import Abstain, Module, Tensor, is_module, is_tensor
from .rng_state import is_generator
from .unseen_state import may_change_unseen

_ATOMS = frozenset((int, float, complex, bool, str, bytes, type(None)))
_MAX_OBJECTS = 10_000  # beside the modules' own
_MAX_ARRAY_BYTES = 1 << 26
_PLAIN = (dict, OrderedDict)
_CONTAINERS = frozenset((dict, defaultdict, list, deque, tuple, set, frozenset, bytearray))
_Slots = list[MemberDescriptorType]
_FACTORY = cast("MemberDescriptorType", vars(defaultdict)["default_factory"])
_WORKED_OUT = frozenset(("fractions", "inspect", "pathlib", "uuid"))  # in their slots, by and by


class _Array(Protocol):
    """What is used of NumPy's arrays."""

    base: object
    dtype: _Dtype
    flags: _Flags
    nbytes: int

    def tobytes(self) -> bytes: ...
    def copy(self) -> _Array: ...
    def ravel(self) -> _Array: ...
    def tolist(self) -> list[object]: ...
    def view(self, kind: type) -> _Array: ...
    def __setitem__(self, place: object, value: object) -> None: ...


class _Dtype(Protocol):
    hasobject: bool
    names: tuple[str, ...] | None


class _Flags(Protocol):
    writeable: bool


class ModuleState:
    """A snapshot of the Python state below some modules.

    Args:
        others: Objects outside the tree that its code can reach (globals of forward functions).
        parameters: Ids of parameters: kept by the version check instead.

    Raises:
        Abstain: there is more of it than can be kept, or something that can't be put back.
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
        self._slots: list[tuple[str, object, _Slots, list[object]]] = []
        self._slotted: dict[type, _Slots] = {}
        self._waiting: deque[tuple[object, str, int]] = deque()
        self._classes: list[tuple[type, dict[str, object]]] = []
        self._cells: list[tuple[str, CellType, object]] = []
        self._is_library = Libraries(type(part) for module in modules for part in module.modules()).hold
        for module in modules:
            self._module(module, type(module).__name__)
        for name, thing in others:
            self._visit(thing, name, 0)
        while self._waiting:
            self._look_into(*self._waiting.popleft())

    def restore(self) -> list[str]:
        """Put back what changed; the names of it."""
        changed: list[str] = []
        for path, mapping, saved in self._dicts:
            names = dict_changes(mapping if type(mapping) in _PLAIN else raw_dict(mapping), saved)
            if names:
                changed += [f"{path}.{name}" for name in names if name != "training"]
                _refill(mapping, saved)
        for path, items, kept in self._lists:
            now = raw_list(items)
            if len(now) != len(kept) or any(new is not old for new, old in zip(now, kept, strict=True)):
                changed.append(path)
                if isinstance(items, list):
                    list.__setitem__(items, slice(None), kept)
                else:
                    deque.clear(items)
                    deque.extend(items, kept)
        for path, members, kept_members in self._sets:
            if set(set.__iter__(members)) != kept_members:
                changed.append(path)
                set.clear(members)
                set.update(members, kept_members)
        for path, raw, kept_raw in self._bytes:
            if raw != kept_raw:
                changed.append(path)
                raw[:] = kept_raw
        for path, array, kept_array in self._arrays:
            if array.tobytes() != kept_array.tobytes():
                changed.append(path)
                array[...] = kept_array
        for path, thing, slots, parts in self._slots:
            changed += [f"{path}.{name}" for name in _restore_slots(thing, slots, parts)]
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
        """What instances of a class share, also of the user's parents and metaclass, and what those hold."""
        for each in (*kind.__mro__, *type.mro(type(kind))):
            library = self._is_library(home_of(each))
            if id(each) in self._seen or (library and each is not kind):
                continue
            self._seen.add(id(each))
            self._classes.append((each, dict(vars(each))))
            if library:
                continue
            for name, value in vars(each).items():
                if type(value) not in _ATOMS:
                    for part in _of_class(value):
                        self._visit(part, f"{each.__name__}.{name}", 0)

    def _visit(self, value: object, path: str, depth: int) -> None:
        kind = type(value)
        if kind in _ATOMS or id(value) in self._seen:
            return
        if (kind is tuple or kind is frozenset) and _are_atoms(cast("tuple[object, ...]", value)):
            return  # nor can they change: of a tokenizer's pairs of words there are some 50,000
        if (kind is dict or kind is OrderedDict) and not value:  # most of what a module holds
            self._seen.add(id(value))
            self._dicts.append((path, cast("MutableMapping[object, object]", value), {}))
            return
        if is_tensor(value, self._torch):
            self._seen.add(id(value))
            if id(value) not in self._parameters:
                self.tensors.append(value)
            self._attributes(value, path, depth)
            return
        if is_module(value, self._torch):
            self._waiting.append((value, path, depth))
            return
        if isinstance(value, type):
            self._class(value)
            return
        if kind is ModuleType or is_own(home_of(kind)):
            return
        self._seen.add(id(value))
        self._held += depth > 0
        if self._held > _MAX_OBJECTS:
            raise Abstain("the modules hold more objects than can be put back after a replay")
        self._waiting.append((value, path, depth))

    def _look_into(self, value: object, path: str, depth: int) -> None:
        """What a thing holds, as far as it is known how that is put back."""
        kind = type(value)
        if kind in _CONTAINERS:
            self._contents(value, path, depth)
        elif is_module(value, self._torch):
            self._module(value, path)
        elif kind is FunctionType:
            self._function(cast("FunctionType", value), path, depth)
        elif object_effect(value) is not Effect.OUTPUT:
            self._contents(value, path, depth)
            self._object(value, path, depth)

    def _contents(self, value: object, path: str, depth: int) -> None:
        """Of containers, of what calls another, of what counts by itself."""
        if isinstance(value, dict):
            kept = raw_dict(value)
            self._dicts.append((path, value, kept))
            self._inside(kept, path, depth)
            self._inside(kept.values(), path, depth)
            if isinstance(value, defaultdict):
                self._keep_slots(value, [_FACTORY], path, depth)
        elif isinstance(value, list | deque):
            items = raw_list(value)
            self._lists.append((path, value, items))
            self._inside(items, path, depth)
        elif isinstance(value, set):
            members = set(set.__iter__(value))
            self._sets.append((path, value, members))
            self._inside(members, path, depth)
        elif isinstance(value, bytearray):
            self._bytes.append((path, value, bytes(value)))
        elif isinstance(value, tuple | frozenset):
            base = tuple if isinstance(value, tuple) else frozenset
            self._inside(base.__iter__(value), path, depth)  # type: ignore[arg-type]
        elif isinstance(value, weakref.ref):
            self._visit(weakref.ref.__call__(value), path, depth + 1)
        elif isinstance(value, ASKING):
            self._inside(gc.get_referents(value), path, depth)
        elif isinstance(value, functools.partial):
            self._inside((value.func, value.args, value.keywords), path, depth)
        elif isinstance(value, MethodType | BuiltinFunctionType | MethodWrapperType):
            self._inside((value.__self__, getattr(value, "__func__", None)), path, depth)
        elif is_generator(value, self._torch):
            self.generators.append(value)
        elif array_type(type(value)) is not None:
            self._array(value, path, depth)
        elif may_change_unseen(value):
            spoken = f"{home_of(type(value))}.{type(value).__qualname__}"
            raise Abstain(f"{path} is a {spoken}, whose state can't be put back after a replay")

    def _object(self, value: object, path: str, depth: int) -> None:
        """An object of the user's or of a library's: its attributes, its slots; of the user's, its class."""
        kind = type(value)
        self._attributes(value, path, depth)
        if kind not in self._slotted:
            self._slotted[kind] = _slots_of(kind)
        slots = self._slotted[kind]
        if slots:
            self._keep_slots(value, slots, path, depth)
        if not self._is_library(home_of(kind)):
            self._class(kind)

    def _keep_slots(self, value: object, slots: _Slots, path: str, depth: int) -> None:
        parts = [in_slot(value, slot) for slot in slots]
        self._slots.append((path, value, slots, parts))
        for slot, part in zip(slots, parts, strict=True):
            self._visit(part, f"{path}.{slot.__name__}", depth + 1)

    def _attributes(self, value: object, path: str, depth: int) -> None:
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        if not isinstance(attributes, dict):
            return
        self._dicts.append((path, attributes, dict(attributes)))
        if attributes and not runs_modules(type(value)):
            for name, part in attributes.items():
                if type(part) not in _ATOMS:
                    self._visit(part, f"{path}.{name}", depth + 1)

    def _function(self, function: FunctionType, path: str, depth: int) -> None:
        """A function of the user's: its attributes, its defaults, what it closes over."""
        attributes = cast("MutableMapping[object, object]", function.__dict__)
        if self._is_library(str(function.__globals__.get("__name__"))):
            self._visit(attributes.get("__wrapped__"), path, depth + 1)
            return
        self._dicts.append((path, attributes, dict(attributes)))
        self._inside(attributes.values(), path, depth)
        self._inside((function.__defaults__, function.__kwdefaults__), path, depth)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            content = content_of(cell)
            self._cells.append((f"{path}>{name}", cell, content))
            self._visit(content, f"{path}>{name}", depth + 1)

    def _array(self, value: object, path: str, depth: int) -> None:
        """An array of NumPy's, which forward code may count in: its memory, and the objects in it."""
        array = cast("_Array", value)
        if array_type(type(array.base)) is not None:
            self._visit(array.base, path, depth + 1)
        if not array.flags.writeable:
            return
        if array.nbytes > _MAX_ARRAY_BYTES:
            raise Abstain(f"{path} is an array too large to be put back after a replay")
        if array.dtype.hasobject and array.dtype.names:
            raise Abstain(f"{path} is an array of records that can't be put back after a replay")
        numpy = cast("type[_Array]", array_type(type(array)))
        plain = numpy.view(array, numpy)
        if array.dtype.hasobject:
            self._inside(plain.ravel().tolist(), path, depth)
        self._arrays.append((path, plain, plain.copy()))

    def _inside(self, values: object, path: str, depth: int) -> None:
        held = list(cast("Iterator[object]", values))
        for value in () if _are_atoms(held) else held:
            if type(value) not in _ATOMS:
                self._visit(value, path, depth + 1)


def _are_atoms(values: Iterable[object]) -> bool:
    return _ATOMS.issuperset(map(type, values))


def _of_class(value: object) -> tuple[object, ...]:
    """What there is to keep of an attribute of a class: functions, and no machinery."""
    if isinstance(value, staticmethod | classmethod):
        return (value.__func__,)
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    kind = type(value)
    machinery = hasattr(kind, "__get__") and is_library(home_of(kind))
    return () if machinery and not isinstance(value, FunctionType) else (value,)


def array_type(kind: type) -> type | None:
    """NumPy's own among the classes of an array."""
    found = (each for each in kind.__mro__ if (home_of(each), each.__name__) == ("numpy", "ndarray"))
    return next(found, None)


def raw_dict(mapping: MutableMapping[object, object]) -> dict[object, object]:
    """What lies in a mapping, whatever its class gives out for it."""
    if isinstance(mapping, OrderedDict):
        return dict(OrderedDict.items(mapping))
    return dict(dict.items(mapping) if isinstance(mapping, dict) else mapping)


def _refill(mapping: MutableMapping[object, object], saved: dict[object, object]) -> None:
    base: type = OrderedDict if isinstance(mapping, OrderedDict) else dict
    if not isinstance(mapping, dict):
        base = type(mapping)
    base.clear(mapping)  # type: ignore[attr-defined]
    for key, value in saved.items():
        base.__setitem__(mapping, key, value)  # type: ignore[index]


def raw_list(items: list[object] | deque[object]) -> list[object]:
    """What lies in a list, whatever its class gives out for it."""
    return list(list.__iter__(items) if isinstance(items, list) else deque.__iter__(items))


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
            type.__delattr__(kind, name)  # whatever its metaclass would do
        elif now.get(name) is not saved[name]:
            type.__setattr__(kind, name, saved[name])
        else:
            continue
        changed.append(f"{kind.__name__}.{name}")
    return changed


def _slots_of(kind: type) -> _Slots:
    """The slots of its objects, but for those in which paths and the like note what they have worked out."""
    found = [
        vars(each).get(name)
        for each in kind.__mro__
        if package_of(each) not in _WORKED_OUT
        for name in own_slots(each)
    ]
    return [slot for slot in found if isinstance(slot, MemberDescriptorType)]


def _restore_slots(thing: object, slots: _Slots, parts: list[object]) -> list[str]:
    changed = []
    for slot, part in zip(slots, parts, strict=True):
        if in_slot(thing, slot) is part:
            continue
        changed.append(slot.__name__)
        if part is EMPTY:
            slot.__delete__(thing)
        else:
            slot.__set__(thing, part)
    return changed
