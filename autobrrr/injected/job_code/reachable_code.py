"""What forward code can call without a name that leads there: methods and functions of all that it holds.

In: objects, names of attributes that code takes from anything. Out: functions that may be called so.
"""

from __future__ import annotations

import functools
import gc
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import CellType, FunctionType, MappingProxyType, MemberDescriptorType, MethodType, ModuleType
from typing import Any
from weakref import ref

from ..live_torch.torch_types import is_module, is_tensor
from .effects import module_effect
from .held_objects import ASKING, attributes_of, runs_modules, slots_of
from .installed_code import home_of

_MAX_OBJECTS = 20_000
_AT_ONCE = 200
_MAX_PARTS = 10_000  # looked into in one container
_MAX_LENGTH = 50_000  # of the containers of one look: some milliseconds
_ATOMS = frozenset(map(id, (str, bytes, bool, int, float, type(None))))  # a metaclass may say what it equals
_CALLED = (FunctionType, MethodType, property, staticmethod, classmethod)
_CODE = (
    *_CALLED, type, functools.cached_property, functools.partialmethod, functools.singledispatchmethod,
    functools._lru_cache_wrapper,
)  # fmt: skip
_CONTAINERS = (list, tuple, set, frozenset, deque)
# Of special methods, what hardly any forward runs without a name: read where one does.
# fmt: off
_SELDOM = frozenset((
    "__repr__", "__str__", "__format__", "__init__", "__new__", "__post_init__", "__del__", "__reduce__",
    "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__", "__copy__", "__init_subclass__",
    "__class_getitem__",
))
# fmt: on
_MAKING = frozenset(("__init__", "__new__", "__post_init__"))  # of a class that is held
CALLED_BY_TORCH = frozenset(("forward", "backward", "setup_context"))


def is_implicit(name: str) -> bool:
    """Whether a method of this name can be called by an expression that does not name it."""
    return name.startswith("__") and name.endswith("__") and name not in _SELDOM


def _is_atom(thing: object) -> bool:
    return id(type(thing)) in _ATOMS


def _is_empty(thing: object) -> bool:
    """Whether it is one of the dicts for hooks: most of what a module holds."""
    return type(thing) in (dict, OrderedDict) and not thing


class Reach:
    """Grows with the objects that are held and the attribute names that code uses.

    Args:
        is_library: Whether a module is one whose code is not read.

    Attributes:
        modules: Names of those of the user's own that are held: what is then taken from them shows nowhere.
    """

    def __init__(self, torch: ModuleType, is_library: Callable[[str], bool]) -> None:
        self._is_library = is_library
        self.modules: list[str] = []
        self._length = 0  # of the containers of one look
        self._torch = torch
        self._coming: deque[tuple[object, bool]] = deque()
        self._seen: set[int] = set()
        self._held: list[object] = []  # so that an id stays its own
        self._methods: dict[str, list[tuple[object, object]]] = {}
        self._classes: set[tuple[int, int]] = set()
        self._used: set[str] = set()
        self._called: list[tuple[object, object | None]] = []

    def attribute(self, name: str) -> None:
        """Code takes an attribute of this name from something."""
        if name not in self._used:
            self._used.add(name)
            for member, held in self._methods.get(name, []):
                self._use(member, held)

    def into(self, thing: object) -> None:
        """Code holds a thing, and through it all that it holds."""
        self._coming.append((thing, True))

    def look(self) -> bool:
        """Look into some of it; whether there is more to do."""
        self._length = 0
        for _ in range(min(_AT_ONCE, len(self._coming))):
            if self._length > _MAX_LENGTH:
                break
            held, by_name = self._coming.popleft()
            if _is_atom(held) or id(held) in self._seen or _is_empty(held) or self._is_bare(held):
                continue
            self._seen.add(id(held))
            self._held.append(held)
            if not by_name and isinstance(held, FunctionType | MethodType):
                self._called.append((held, None))  # in a container: which one is called shows no name
            self._coming += ((part, False) for part in self._parts(held) if not _is_atom(part))
        if len(self._held) > _MAX_OBJECTS:
            self._coming.clear()
        return bool(self._coming or self._called)

    def _is_bare(self, held: object) -> bool:
        """Whether it is a tensor of torch's own, and no more."""
        is_torchs = is_tensor(held, self._torch) and self._is_library(home_of(type(held)))
        return is_torchs and not attributes_of(held)

    def newly_called(self) -> list[tuple[object, object | None]]:
        """Functions found since the last look, with the object whose methods they are."""
        called, self._called = self._called, []
        return called

    def _parts(self, held: object) -> list[object]:
        """What a thing holds, but for functions that are called by a name."""
        attributes = attributes_of(held) or {}
        if is_tensor(held, self._torch):
            return [*self._named(attributes, None), *self._class(type(held), held)]
        if isinstance(held, ModuleType):
            if not self._is_library(held.__name__):
                self.modules.append(held.__name__)
            return []
        if isinstance(held, type):
            return [*self._class(held, held), *self._class(type(held), held)]
        items, kind = list(self._items(held)), type(held)
        home = home_of(kind)
        if self._is_library(home) and not is_module(held, self._torch):
            plain = module_effect(home) is None and not runs_modules(kind)
            return [*items, *attributes.values()] if plain else items
        members: dict[Any, object] = {slot.__name__: kept for slot, kept in slots_of(held)}
        members |= attributes
        return [*items, *self._named(members, None), *self._class(kind, held)]

    def _items(self, held: object) -> Iterable[object]:
        """What a container, a wrapper or a library's function leads to."""
        if isinstance(held, dict):
            yield getattr(held, "default_factory", None) if isinstance(held, defaultdict) else None
            for parts in (dict.keys, dict.values):
                yield from self._some(functools.partial(parts, held), dict.__len__(held))
        elif isinstance(held, list | tuple | set | frozenset | deque):
            base: Any = next(each for each in type(held).__mro__ if each in _CONTAINERS)
            yield from self._some(functools.partial(base.__iter__, held), base.__len__(held))
        elif isinstance(held, functools.partial):
            yield from (held.func, *held.args, *held.keywords.values())
        elif isinstance(held, MethodType):
            yield held.__self__
        elif isinstance(held, ref):
            yield ref.__call__(held)
        elif isinstance(held, (MappingProxyType, CellType, *ASKING)):
            yield from gc.get_referents(held)
        elif isinstance(held, FunctionType) and self._is_library(str(held.__globals__.get("__name__"))):
            yield from held.__closure__ or ()

    def _some(self, parts: Callable[[], Iterable[object]], count: int) -> list[object]:
        """What may lead on in a container; the longest hold numbers or words."""
        if count > _MAX_LENGTH:
            return []
        self._length += count
        return list(islice((each for each in parts() if not _is_atom(each)), _MAX_PARTS))

    def _class(self, kind: type, held: object) -> list[object]:
        """What the objects of a class share, or the class that is held."""
        shared: list[object] = []
        for each in kind.__mro__:
            key = id(each), id(type(held))
            if not self._is_library(home_of(each)) and key not in self._classes:
                self._classes.add(key)
                shared += self._named(vars(each), held)
        return shared

    def _named(self, members: Mapping[Any, object], held: object) -> list[object]:
        """What stands under names, but for code: that is called by them, special functions without."""
        others: list[object] = []
        for name, member in list(members.items()):
            if not isinstance(name, str):  # of a dict that is its object's attributes
                others.append(member)
            elif isinstance(member, MemberDescriptorType):
                continue  # each object has its own there
            elif isinstance(member, _CODE):
                self._methods.setdefault(name, []).append((member, held))
                special = is_implicit(name) or name in CALLED_BY_TORCH
                special |= isinstance(held, type) and name in _MAKING
                if special or name in self._used:
                    self._use(member, held)
            elif held is None or not name.startswith("__"):
                others.append(member)
                if held is not None and not self._is_library(home_of(type(member))):
                    for reads in ("__get__", "__set__", "__delete__"):  # a descriptor of the user's own
                        self._called.append((getattr(type(member), reads, None), member))
        return others

    def _use(self, member: object, held: object) -> None:
        if isinstance(member, _CALLED):
            self._called.append((member, held))
        else:
            self.into(member)
