"""What the names in a function's code lead to: globals, members of modules, what it imports as it runs.

In: functions. Out: the places that are read (a namespace and names in it), values that stand there; ways to
look a name up that no code shows (`eval`, `sys.modules`, `getattr` of a module).
"""

from __future__ import annotations

import builtins
import dis
import functools
import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import cast

from .bytecode_names import chains, codes
from .effects import BACK_DOORS
from .installed_code import home_of, is_library, members_of

_HIDING = (eval, exec, globals, __import__, importlib.import_module, importlib.reload, sys.modules)
_HIDING_ON_MODULES = (
    getattr,
    hasattr,
    vars,
    dir,
    operator.attrgetter,
    inspect.getattr_static,
    inspect.getmembers,
)
_GIVES = "__getattr__"  # of a module: members that it has not
_ALL = "__dict__"
_IN_C = ("_cython_", "pybind11_")  # what functions made so say of their class
_IMPORT = dis.opmap["IMPORT_NAME"]
_CODE = (type, FunctionType, MethodType, BuiltinFunctionType)


Place = tuple[dict[str, object], set[str]]  # a namespace, and names in it


@dataclass(frozen=True, slots=True)
class _Names:
    """Of a code object and those in it."""

    chains: tuple[tuple[str, ...], ...]  # from a global on
    imports: tuple[tuple[str, int], ...]  # made as it runs; how many packages up they begin, from 1 on
    all: frozenset[str]


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> _Names:
    found, imports = set[tuple[str, ...]](), set[tuple[str, int]]()
    for each in codes(code):
        found |= {tuple(names) for root, names in chains(each, "") if root == "name"}
        if _IMPORT not in each.co_code[::2]:
            continue
        loaded = list[object]()
        for instruction in dis.get_instructions(each):
            if instruction.opname == "IMPORT_NAME":  # after its level and what is taken from it
                imports.add((str(instruction.argval), int(str(loaded[-2]))))
            elif instruction.opname.startswith("LOAD_"):
                loaded.append(instruction.argval)
    return _Names(tuple(found), tuple(imports), frozenset(names_in(code)))


def names_in(code: CodeType) -> set[str]:
    """All names in a code object, and in those of the functions that are defined in it."""
    return {name for each in codes(code) for name in each.co_names}


def _package(module_name: str) -> str:
    return module_name.partition(".")[0]


def written_in(function: FunctionType) -> str:
    """The module of a function's code: a wrapper takes on the `__module__` of what it wraps."""
    return str(function.__globals__.get("__name__", ""))


def _origin(value: object) -> str:
    """The module that a function, a class or an object is of."""
    value = value.__func__ if isinstance(value, MethodType) else value
    if isinstance(value, FunctionType):
        return written_in(value)
    return home_of(value if isinstance(value, type) else type(value)) or "builtins"


def name_of(module: ModuleType) -> str:
    """Of a module that may have lost it."""
    return str(members_of(module).get("__name__", ""))


class Reads:
    """Places whose values some functions read.

    What the members of another package's modules are is noted; its code is not looked into.

    Args:
        is_known: Whether a module's members are none of the job's.
    """

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._places: dict[int, Place] = {}
        self._names = {_GIVES}
        self._packages = set[str]()  # whose code it is
        self._modules: dict[int, ModuleType] = {}  # in hand as wholes: any name may be looked up on them
        self._members: list[tuple[str, object]] = []  # of other packages' modules, by what they are named

    @property
    def modules(self) -> list[str]:
        """Names of the job's own that its code hands on, or that something holds: no other package's."""
        return [name for name in map(name_of, self._modules.values()) if self._is_own(name)]

    @property
    def places(self) -> list[Place]:
        found = {key: (space, set(names)) for key, (space, names) in self._places.items()}
        for space in map(members_of, self._modules.values()):
            found.setdefault(id(space), (space, set()))[1].update(self._names)
        return list(found.values())

    def of(self, function: FunctionType) -> Iterator[object]:
        """Note what a function reads; the values of it, modules among them where it has them as wholes."""
        names = _names(function.__code__)
        self._names |= names.all
        self._packages.add(_package(written_in(function)))
        for chain in names.chains:
            value, home = self._follow(function.__globals__, chain)
            if self._leads_on(value, home):
                yield value
            else:
                self._members.append((home, value))
        for name in _imported(function, names):
            if not is_library(name):
                self._read(cast("dict[str, object]", sys.modules), name)
            yield sys.modules.get(name)

    def whole(self, module: ModuleType) -> None:
        """A module is met as a value."""
        if not self._is_known(name_of(module)):
            self._modules[id(module)] = module

    def members(self) -> list[object]:
        """What code may find on modules that are in hand as wholes, or have turned out to be its own."""
        found = list(self._members)
        for module in self._modules.values():
            space, home = members_of(module), name_of(module)
            found += [(home, type(module)), *((home, space[name]) for name in space.keys() & self._names)]
        return [value for home, value in found if self._leads_on(value, home)]

    def _is_own(self, module_name: str) -> bool:
        return not is_library(module_name) or _package(module_name) in self._packages

    def _leads_on(self, value: object, home: str) -> bool:
        """Whether a member of a module is looked into: of another package's no code, nor its objects."""
        if not home or self._is_own(home):
            return True
        if self._is_known(home):  # the job may have put its own there
            return self._is_the_jobs(value)
        return not isinstance(value, _CODE) and self._is_known(home_of(type(value)))

    @staticmethod
    def _is_the_jobs(value: object) -> bool:
        origin = _origin(value)
        return not (is_library(origin) or origin.startswith(_IN_C))

    def _follow(self, space: dict[str, object], chain: Iterable[str]) -> tuple[object, str]:
        """What a chain leads to, and the module that it is a member of; empty: it is a global."""
        value: object = None
        home = inner = ""
        for name in chain:
            if name == _ALL:
                break
            if not self._is_known(inner) or self._is_the_jobs(space.get(name)):
                self._read(space, name)
            if not inner and name not in space:
                space = vars(builtins)
                self._read(space, name)
            value, home = space.get(name), inner
            if not isinstance(value, ModuleType):
                break
            space, inner = members_of(value), name_of(value)
            if self._is_known(inner):
                continue
            self._read(space, _GIVES)
            self._members += [(inner, each) for each in (type(value), space.get(_GIVES))]
        return value, home

    def _read(self, space: dict[str, object], name: str) -> None:
        self._places.setdefault(id(space), (space, set()))[1].add(name)


def hidden_lookup(function: FunctionType, modules: Iterable[str]) -> str | None:
    """A way in which a function may look up what its names don't show; None where there is none.

    Args:
        modules: Names of those that it may have in hand.
    """
    names = _names(function.__code__)
    values = [_resolved(function.__globals__, chain) for chain in names.chains]
    for module in (sys.modules.get(name) for name in _imported(function, names)):
        if isinstance(module, ModuleType):
            values += map(members_of(module).get, names.all)
    door = next(iter(sorted(names.all & BACK_DOORS)), None)
    hiding = next((each for each in _HIDING if any(each is value for value in values)), None)
    if door is not None or hiding is not None:
        return door or ("sys.modules" if hiding is sys.modules else getattr(hiding, "__name__", ""))
    asked = next(
        (each.__name__ for each in _HIDING_ON_MODULES if any(each is value for value in values)), None
    )
    asked = _ALL if _ALL in names.all else asked
    module_name = next(iter(modules), None)
    return None if asked is None or module_name is None else f"{asked} on the module {module_name}"


def _resolved(space: dict[str, object], chain: tuple[str, ...]) -> object:
    """What a chain of names leads to, through modules."""
    value = space.get(chain[0], vars(builtins).get(chain[0]))
    for name in chain[1:]:
        if not isinstance(value, ModuleType):
            break
        value = members_of(value).get(name)
    return value


def _imported(function: FunctionType, names: _Names) -> Iterator[str]:
    """Full names of the modules that it imports, and of the packages that those are in."""
    for name, level in names.imports:
        full = name
        if level:
            base = str(function.__globals__.get("__package__")).rsplit(".", level - 1)[0]
            full = f"{base}.{name}" if name else base
        parts = full.split(".")
        for end in range(1, len(parts) + 1):
            yield ".".join(parts[:end])
