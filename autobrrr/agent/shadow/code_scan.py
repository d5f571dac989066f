"""Reads the code that a replay would run again, for anything that can be seen from outside.

From the forward methods of the user's own modules into the functions and methods that they
call, as far as names resolve. Installed libraries are trusted. What is found: names outside torch, math
and the modules' own tree (print, open, logging, wandb ...), hooks set inside a forward, state that
nobody can put back (iterators, caches, rebound names), global objects whose state the guard must keep.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import cast

from .kinds import Module, is_module, is_tensor
from .module_state import is_library

# fmt: off
_TRUSTED = frozenset((
    "torch", "torchvision", "torchaudio", "torch_geometric", "torch_scatter", "torch_sparse", "einops",
    "timm", "transformers", "peft", "diffusers", "lightning", "pytorch_lightning", "jaxtyping", "beartype",
    "math", "cmath", "numpy", "numbers", "random", "statistics", "string", "re", "time", "operator",
    "builtins", "typing", "typing_extensions", "types", "enum", "abc", "dataclasses", "collections",
    "functools", "itertools", "copy", "contextlib", "inspect", "weakref", "warnings",
    "argparse", "omegaconf", "ml_collections", "easydict",
))
# fmt: on
_SEEN_OUTSIDE = frozenset(("print", "open", "input", "exec", "eval", "breakpoint", "__import__"))
_HOOK_SETTERS = frozenset(
    (
        "register_hook",
        "register_forward_hook",
        "register_full_backward_hook",
        "register_post_accumulate_grad_hook",
    )
)
_LOGGING_METHODS = frozenset(("log", "log_dict", "print"))
_CACHE = type(functools.lru_cache(lambda: None))
_COPIES = ("COPY", "DUP_TOP")  # in `name.attribute += 1`, between the name and the attribute
_IMPORTING = ("IMPORT_FROM", "STORE_FAST", "SWAP", "ROT_TWO", "POP_TOP")  # after the import itself
_MAX_FUNCTIONS = 2_000


@dataclass(slots=True)
class Findings:
    """What the scan found."""

    refusals: list[str] = field(default_factory=list)
    globals: list[tuple[str, object]] = field(default_factory=list)
    writes_data: bool = False  # some forward code touches `.data`


class CodeScan:
    """One scan over the modules of a tape."""

    def __init__(self, torch: ModuleType) -> None:
        self.findings = Findings()
        self._torch = torch
        self._seen: set[object] = set()
        self._queue: list[tuple[FunctionType, object | None]] = []
        self._own: set[str] = set()

    def steps(self, modules: list[Module]) -> Generator[str, None, None]:
        """Scans one function a step, so that the caller can spread the work."""
        parts = {id(part): part for module in modules for part in module.modules()}
        kinds: set[type] = set()
        for part in parts.values():
            kind = type(part)
            self._own.add(kind.__module__.partition(".")[0])
            patched = vars(part).get("forward")
            if kind in kinds and patched is None:
                continue
            kinds.add(kind)
            self._enter(patched if patched is not None else getattr(kind, "forward", None), part)
            self._enter(getattr(kind, "__call__", None), part)  # noqa: B004  its code is wanted
        while self._queue and len(self._seen) < _MAX_FUNCTIONS:
            yield "reading the forward code"
            function, owner = self._queue.pop()
            self._function(function, owner)

    def _enter(self, thing: object, owner: object | None) -> None:
        """Queue a function of the user's own."""
        if isinstance(thing, staticmethod | classmethod | MethodType):
            owner = thing.__self__ if isinstance(thing, MethodType) else None
            thing = thing.__func__
        if isinstance(thing, property):
            thing = thing.fget
        if isinstance(thing, functools.partial):
            thing = thing.func
        while isinstance(thing, FunctionType):  # a decorator's function, and what it is wrapped around
            key = (thing.__code__, type(owner))
            # `functools.wraps` copies `__module__`: only its globals say where a function was written.
            if key not in self._seen and not is_library(str(thing.__globals__.get("__name__"))):
                self._seen.add(key)
                self._queue.append((thing, owner))
            thing = getattr(thing, "__wrapped__", None)

    def _function(self, function: FunctionType, owner: object | None) -> None:
        cells = dict(
            zip(
                function.__code__.co_freevars,
                (_content(cell) for cell in function.__closure__ or ()),
                strict=False,
            )
        )
        for kept in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.findings.globals.append((f"a default of {function.__qualname__}", kept))
        for code in _codes(function.__code__):
            self._code(function, code, owner, cells)

    def _code(
        self, function: FunctionType, code: CodeType, owner: object | None, cells: dict[str, object]
    ) -> None:
        """Follow each chain of a loaded name and the attributes taken from it."""
        where = function.__qualname__
        for name in _rebound(code, function.__code__.co_freevars):
            self._refuse(f"{where} sets {name}")
        arguments = function.__code__.co_argcount
        itself = function.__code__.co_varnames[0] if owner is not None and arguments else "self"
        for root, names in _chains(code, itself):
            if root == "import":
                self._judge_module(names[0], where)
            elif root == "stored":
                found = function.__globals__.get(names[0], cells.get(names[0]))
                self._stored(sys.modules.get(names[0]) if found is None else found, names, where)
            elif root == "name" or (root == "free" and names[0] in cells):
                place = function.__globals__ if root == "name" else cells
                missing = object()
                thing = place.get(names[0], getattr(builtins, names[0], missing))
                if thing is super:
                    self._inherited(code, owner)
                elif thing is not missing:
                    self._judge(thing, names, where)
            elif root == "self" and owner is not None:
                self._own_attribute(owner, names[1:], where)
            for name in names[1:]:
                if name in _HOOK_SETTERS:
                    self._refuse(f"{where} calls {name}")
                self.findings.writes_data |= name == "data"

    def _inherited(self, code: CodeType, owner: object | None) -> None:
        """`super().name`: what the parents of the owner's class call so."""
        for kind in type(owner).__mro__[1:]:
            for name in code.co_names:
                self._enter(vars(kind).get(name), owner)

    def _stored(self, thing: object, names: list[str], where: str) -> None:
        """An attribute is set: of objects the guard keeps it, of what is no one's own it does not."""
        for name in names[1:-1]:
            if isinstance(thing, ModuleType | type):
                thing = getattr(thing, name, None)
        if isinstance(thing, ModuleType | type | FunctionType):
            self._refuse(f"{where} sets {'.'.join(names)}")

    def _judge(self, thing: object, names: list[str], where: str) -> None:
        spoken = ".".join(names)
        for at, name in enumerate(names[1:], start=1):
            if not isinstance(thing, ModuleType):
                break
            if thing.__name__.startswith("torch.distributed"):
                self._refuse(f"{where} uses torch.distributed")
            if at == 1 or is_library(thing.__name__):
                self._judge_module(thing.__name__, where)
            thing = getattr(thing, name, None)
            names = names[at:]
        if type(thing).__name__ == "ScriptFunction":
            self._refuse(f"{where} calls {spoken}, TorchScript that would specialise on other shapes")
        elif isinstance(thing, ModuleType):
            self._judge_module(thing.__name__, where)
        elif isinstance(thing, type):
            self._judge_class(thing, where)
        elif callable(thing) and isinstance(getattr(thing, "__name__", None), str):
            self._judge_callable(thing, spoken, where)
        elif thing is not None:
            self._judge_object(thing, names, spoken, where)

    def _judge_module(self, name: str, where: str) -> None:
        top = name.partition(".")[0]
        if name.startswith("torch.distributed"):
            self._refuse(f"{where} uses torch.distributed")
        elif top not in _TRUSTED and top not in self._own and is_library(name):
            self._refuse(f"{where} uses {top}")

    def _judge_class(self, kind: type, where: str) -> None:
        if issubclass(kind, BaseException) and not issubclass(kind, Exception):
            self._refuse(f"{where} uses {kind.__name__}, which could end the job")
        if is_library(kind.__module__):
            self._judge_module(kind.__module__, where)
            return
        for name in ("__init__", "__call__", "forward", "backward", "setup_context", "__enter__", "__exit__"):
            self._enter(vars(kind).get(name), None)

    def _judge_callable(self, thing: object, spoken: str, where: str) -> None:
        home = getattr(thing, "__module__", None) or ""
        name = str(getattr(thing, "__name__", ""))
        if home in ("builtins", "io", "_io") and (name in _SEEN_OUTSIDE or home != "builtins"):
            self._refuse(f"{where} calls {spoken}")
        elif isinstance(thing, _CACHE) and not is_library(home):
            self._refuse(f"{where} fills the cache of {spoken}")
        elif home.startswith("torch.distributed"):
            self._refuse(f"{where} uses torch.distributed")
        elif home and is_library(home) and not home.startswith("_"):
            self._judge_module(home, where)
        else:
            self._enter(thing, None)

    def _judge_object(self, thing: object, names: list[str], spoken: str, where: str) -> None:
        kind = type(thing)
        top = kind.__module__.partition(".")[0]
        self._iterators(thing, names, spoken, where)
        if is_tensor(thing, self._torch):
            self.findings.globals.append((names[0], thing))
        elif is_module(thing, self._torch):
            self.findings.globals.append((names[0], thing))
            self._enter(getattr(kind, "forward", None), thing)
        elif is_library(kind.__module__) and top not in _TRUSTED and top not in self._own:
            self._refuse(f"{where} uses {spoken} ({top})")
        else:
            self.findings.globals.append((names[0], thing))
            for name in (*names[1:2], "__call__"):
                self._enter(inspect.getattr_static(kind, name, None), thing)

    def _own_attribute(self, owner: object, names: list[str], where: str) -> None:
        """`self.name...` in a method: a method of its own, or an object that it holds."""
        if not names:
            return
        name = names[0]
        missing = object()
        held = getattr(owner, "__dict__", {}).get(name, missing)
        if held is missing:
            held = inspect.getattr_static(type(owner), name, missing)
        if held is missing or is_module(held, self._torch) or is_tensor(held, self._torch):
            return
        self._iterators(held, names, f"self.{name}", where)
        if isinstance(held, FunctionType) and is_library(held.__module__ or ""):
            if name in _LOGGING_METHODS:
                self._refuse(f"{where} calls self.{name}")
            return
        if isinstance(
            held, FunctionType | MethodType | staticmethod | classmethod | property | functools.partial
        ):
            self._enter(held, None if name in getattr(owner, "__dict__", {}) else owner)
        elif isinstance(held, type | ModuleType) or callable(held):
            self._judge(held, names, where)
        else:
            kind = type(held)
            top = kind.__module__.partition(".")[0]
            if is_library(kind.__module__) and top not in _TRUSTED and top not in self._own:
                self._refuse(f"{where} uses self.{name} ({top})")
            elif len(names) > 1:
                self._enter(inspect.getattr_static(kind, names[1], None), held)

    def _iterators(self, thing: object, names: list[str], spoken: str, where: str) -> None:
        """A generator, a counter, an open iterator: whoever takes from it can't give back."""
        for name in (*names[1:], None):
            if hasattr(type(thing), "__next__") and is_library(type(thing).__module__):
                self._refuse(f"{where} takes from {spoken}, an iterator")
            if name is None:
                return
            thing = getattr(thing, "__dict__", {}).get(name)
            spoken = f"{spoken}.{name}"

    def _refuse(self, why: str) -> None:
        if why not in self.findings.refusals:
            self.findings.refusals.append(why)


def _content(cell: object) -> object:
    try:
        return cell.cell_contents  # type: ignore[attr-defined]
    except ValueError:
        return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _chains(code: CodeType, itself: str) -> Iterator[tuple[str, list[str]]]:
    """Loads with the attributes taken from them at once: ("name", ["np", "random", "rand"]).

    One more, ("stored", ...), where the last attribute is then set. `itself` is a method's first argument,
    by whatever name: ("self", [...]).
    """
    root = ""
    names: list[str] = []
    copied = False
    imported: dict[object, str] = {}
    latest: str | None = None  # module, whose name comes next
    for instruction in dis.get_instructions(code):
        operation, value = instruction.opname, instruction.argval
        if operation in ("LOAD_ATTR", "LOAD_METHOD") and names:
            names.append(cast(str, value))
            if copied and root in ("name", "free"):
                yield "stored", names
            copied = False
            continue
        if operation in ("STORE_ATTR", "DELETE_ATTR") and names and root in ("name", "free"):
            yield "stored", [*names, cast(str, value)]
        if operation in _COPIES and names:
            copied = True
            continue
        if operation == "STORE_FAST" and latest is not None:
            imported[value] = latest
        if operation not in _IMPORTING:
            latest = None
        copied = False
        if operation in ("CACHE", "PUSH_NULL", "EXTENDED_ARG", "COPY_FREE_VARS"):
            continue
        if names:
            yield root, names
        root, names = "", []
        if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            root, names = "name", [cast(str, value)]
        elif operation in ("LOAD_DEREF", "LOAD_CLASSDEREF"):
            root, names = ("self" if value == itself else "free"), [cast(str, value)]
        elif operation == "IMPORT_NAME":
            yield "import", [cast(str, value)]
            latest = cast(str, value)
        elif (
            operation.startswith("LOAD_FAST") and (value[-1] if isinstance(value, tuple) else value) == itself
        ):
            root, names = "self", ["self"]
        elif operation == "LOAD_FAST" and value in imported:
            root, names = "name", [imported[value]]
        elif operation in ("LOAD_ATTR", "LOAD_METHOD"):
            root, names = "other", ["", cast(str, value)]
    if names:
        yield root, names


def _rebound(code: CodeType, outer: tuple[str, ...]) -> Iterator[str]:
    """Names outside the function that it gives another value: globals, and variables around it."""
    for instruction in dis.get_instructions(code):
        operation, name = instruction.opname, instruction.argval
        if operation in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
            operation in ("STORE_DEREF", "DELETE_DEREF") and name in outer
        ):
            yield str(name)
