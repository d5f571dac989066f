"""Reads the code that a replay would run again, for anything that can be seen from outside.

From the forward methods of the user's own modules into the functions and methods that they
call: as far as names resolve, and beyond that every method of the name among all that they hold. Known
libraries are trusted. What is found: names outside torch, math and the modules' own tree (print, open,
logging, wandb ...), hooks set inside a forward, state that nobody can put back (iterators, caches, rebound
names), each with its `Effect`; global objects whose state the guard must keep.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import io
import sys
import weakref
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, MethodWrapperType, ModuleType

from ..live_torch.dispatch_modes import end_late_pause
from ..live_torch.torch_types import Module, is_module, is_tensor
from .bytecode_names import asked_for, chains, codes, only_writes, rebound
from .effects import (
    BACK_DOORS,
    BUILTINS,
    Effect,
    Libraries,
    Refusal,
    kept_by_the_job,
    module_effect,
    object_effect,
    only_shows,
    setting_effect,
    tells,
)
from .held_objects import content_of
from .installed_code import home_of, is_library, members_of, package_of
from .reachable_code import CALLED_BY_TORCH, Reach
from .unread_code import ReadCode, UnreadCode

_HOOK_SETTERS = frozenset(
    (
        "register_hook",
        "register_forward_hook",
        "register_full_backward_hook",
        "register_post_accumulate_grad_hook",
    )
)
# Of Lightning's modules. What is logged there is averaged, and callbacks decide on it.
_LOGGING_METHODS = {"log": Effect.STATE, "log_dict": Effect.STATE, "print": Effect.OUTPUT}
_CACHE = type(functools.lru_cache(lambda: None))
_WRAPPED_CALLS = (BuiltinFunctionType, MethodWrapperType)
_MAX_FUNCTIONS = 2_000
_MOST_MET = 50


@dataclass(slots=True)
class ScanFindings:
    """What the scan found."""

    refusals: list[Refusal] = field(default_factory=list)
    globals: list[tuple[str, object]] = field(default_factory=list)
    writes_data: bool = False  # some forward code touches `.data`
    read: ReadCode = field(default_factory=ReadCode)

    def refusal(self, *, output_too: bool) -> str | None:
        """Why the code may not run again; `output_too`: what only shows twice is a reason as well."""
        found = [one for one in self.refusals if output_too or one.effect is Effect.STATE]
        if not found and self.refusals:
            return kept_by_the_job()
        return found[0].what if found else None


class CodeScan:
    """One scan over the modules of a tape."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._met = 0
        self._seen: set[object] = set()
        self._queue: list[tuple[FunctionType, object | None]] = []
        self._own: set[str] = set()
        self._libraries = Libraries()
        self._is_library = self._libraries.hold
        self.findings = ScanFindings(read=ReadCode(self._is_library))
        self._reach = Reach(torch, self._is_library)

    def steps(self, modules: list[Module], hooks: Iterable[object] = ()) -> Generator[str, None, None]:
        """Scans one function a step, so that the caller can spread the work.

        Args:
            hooks: Of the user's own, which a run of the modules calls too.
        """
        parts = {id(part): part for module in modules for part in module.modules()}
        self._libraries.read(map(type, parts.values()))
        kinds: dict[type, Module] = {}
        for part in parts.values():
            kind = type(part)
            self._own.add(package_of(kind))
            patched = vars(part).get("forward")
            if kind in kinds and patched is None:
                continue
            kinds.setdefault(kind, part)
            self._enter(patched if patched is not None else getattr(kind, "forward", None), part)
            self._enter(getattr(kind, "__call__", None), part)  # noqa: B004  its code is wanted
        for part in parts.values():
            self._reach.into(part)
        for hook in hooks:
            self._judge(hook, ["a hook"], "a hook of the job's own")
        yield from self._queued()

    def meet(self, met: UnreadCode) -> Generator[str, None, None]:
        """Scan code that was about to run unread, and what that leads to.

        Raises:
            UnreadCode: the same, where too much is met: some jobs make code anew in each call.
        """
        self._met += 1
        if self._met > _MOST_MET:
            raise met
        self.findings.read.add(met.function.__code__)
        first, met.first = met.first, None  # it may be a tensor of a replay, which is not to stay
        applied = vars(type(first)).get("_forward_cls")  # of a context of autograd's, the user's function
        if isinstance(applied, type):
            self._judge_class(applied, applied.__name__)
        is_owner = not isinstance(first, type) and not self._is_library(home_of(type(first)))
        self._enter(met.function, first if is_owner else None)
        del first
        yield from self._queued()

    def _queued(self) -> Generator[str, None, None]:
        while self._reach.look() or self._queue:
            yield "reading the forward code"
            if len(self._seen) > _MAX_FUNCTIONS:
                self._refuse(Effect.STATE, f"forward calls more than {_MAX_FUNCTIONS} functions")
                break
            if self._queue:
                self._function(*self._queue.pop())
            for found, holder in self._reach.newly_called():
                self._enter(found, holder)
        for name in self._reach.modules:
            self._refuse(Effect.STATE, f"what a forward uses holds the module {name}")
        # A scan outlives its modules where more may be met: it keeps nothing of theirs alive.
        self._seen.clear()
        self._queue.clear()
        self._reach = Reach(self._torch, self._is_library)

    def _enter(self, thing: object, owner: object | None) -> None:
        """Queue a function of the user's own."""
        if isinstance(thing, staticmethod | classmethod | MethodType):
            owner = thing.__self__ if isinstance(thing, MethodType) else None
            if isinstance(owner, type) and id(owner) not in self._seen:
                self._seen.add(id(owner))  # `apply` of a function of autograd calls what its class has
                self._judge_class(owner, owner.__name__)
            thing = thing.__func__
        if isinstance(thing, property):
            for changes in (thing.fset, thing.fdel):
                self._enter(changes, owner)
            thing = thing.fget
        if isinstance(thing, functools.partial):
            thing = thing.func
        while isinstance(thing, FunctionType):  # a decorator's function, and what it is wrapped around
            key = (thing.__code__, type(owner), *map(id, _made_with(thing)))
            # `functools.wraps` copies `__module__`: only its globals say where a function was written.
            if self._is_library(str(thing.__globals__.get("__name__"))):
                self._reach.into(thing)  # what it was made around
            elif key not in self._seen:
                self._seen.add(key)
                self._queue.append((thing, owner))
            thing = getattr(thing, "__wrapped__", None)

    def _function(self, function: FunctionType, owner: object | None) -> None:
        cells = dict(zip(function.__code__.co_freevars, _around(function), strict=False))
        self.findings.globals.append((function.__qualname__, function))
        for kept in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._judge(kept, [f"a default of {function.__qualname__}"], function.__qualname__)
        for code in codes(function.__code__):
            self._code(function, code, owner, cells)

    def _code(
        self, function: FunctionType, code: CodeType, owner: object | None, cells: dict[str, object]
    ) -> None:
        """Follow each chain of a loaded name and the attributes taken from it."""
        where = function.__qualname__
        self.findings.read.add(code)
        for name in rebound(code, function.__code__.co_freevars):
            self._refuse(Effect.STATE, f"{where} sets {name}")
        arguments = function.__code__.co_argcount
        itself = function.__code__.co_varnames[0] if owner is not None and arguments else "self"
        for root, names in chains(code, itself):
            if root == "import":
                self._judge_module(names[0], where)
                self._imported(names[0], str(function.__globals__.get("__package__") or ""), code, where)
            elif root == "stored":
                found = function.__globals__.get(names[0], cells.get(names[0]))
                self._stored(sys.modules.get(names[0]) if found is None else found, names, where)
            elif names == ["__class__"]:
                pass  # from Python 3.12 on `super()` loads it; what a class makes is met
            elif root == "name" or (root == "free" and names[0] in cells):
                place = function.__globals__ if root == "name" else cells
                missing = object()
                thing = place.get(names[0], getattr(builtins, names[0], missing))
                if thing is super:
                    self._inherited(code, owner)
                elif thing is not missing:
                    self._judge(thing, names, where, code)
            elif root == "self" and owner is not None:
                self._own_attribute(owner, names[1:], where)
            for name in names[1:]:
                self._taken(name, where)
        for of, name in asked_for(code, "getattr"):
            self._taken(name, where)
            asked = function.__globals__.get(of)
            if isinstance(asked, ModuleType):
                self._judge(asked, [of, name], where, code)

    def _imported(self, name: str, package: str, code: CodeType, where: str) -> None:
        """A function's own import: what it names of that module, in which package above it may be."""
        above = ["", *(f"{package}.".rsplit(".", drop)[0] for drop in range(1, package.count(".") + 2))]
        coming: list[object] = [sys.modules.get(f"{each}.{name}".strip(".")) for each in above]
        seen: set[int] = set()
        while coming:
            module = coming.pop()
            if not isinstance(module, ModuleType) or id(module) in seen:
                continue
            seen.add(id(module))
            members = members_of(module)
            for each in members.keys() & set(code.co_names):
                self._judge(module, [module.__name__, each], where, code)
                coming.append(members[each])

    def _taken(self, name: str, where: str) -> None:
        """An attribute of this name, of whatever it is."""
        if name in _HOOK_SETTERS:
            self._refuse(Effect.STATE, f"{where} calls {name}")
        elif name in BACK_DOORS:
            self._refuse(Effect.STATE, f"{where} reaches for {name}")
        self.findings.writes_data |= name == "data"
        self._reach.attribute(name)

    def _inherited(self, code: CodeType, owner: object | None) -> None:
        """`super().name`: what the parents of the owner's class call so."""
        for kind in type(owner).__mro__[1:]:
            for name in code.co_names:
                found = vars(kind).get(name)
                self._enter(found, owner)
                if isinstance(found, type):
                    self._reach.into(found)

    def _stored(self, thing: object, names: list[str], where: str) -> None:
        """An attribute is set: of objects the guard keeps it, of what is no one's own it does not."""
        for name in names[1:-1]:
            if isinstance(thing, ModuleType | type):
                thing = getattr(thing, name, None)
        if isinstance(thing, ModuleType | type | FunctionType):
            self._refuse(Effect.STATE, f"{where} sets {'.'.join(names)}")

    def _judge(self, thing: object, names: list[str], where: str, code: CodeType | None = None) -> None:
        end_late_pause()
        spoken = ".".join(names)
        if isinstance(thing, ModuleType) and len(names) == 1:
            self._whole_module(thing, where, code)
        whole = names
        for at, name in enumerate(whole[1:], start=1):
            if not isinstance(thing, ModuleType):
                break
            if thing is sys and name in ("stdout", "stderr"):
                self._refuse(Effect.OUTPUT, f"{where} uses {spoken}")
                return
            if at == 1 or self._is_library(thing.__name__):
                self._judge_module(thing.__name__, where)
            self._judge_setting(thing.__name__, name, f"{where} calls {spoken}")
            is_plain = type(thing) is ModuleType and name in members_of(thing)
            if not is_plain and not self._is_library(thing.__name__):  # code of the user's own gives it
                self._refuse(Effect.STATE, f"{where} takes {name} from {thing.__name__}, which makes it")
                return
            thing = getattr(thing, name, None)
            names = whole[at:]
        if type(thing).__name__ == "ScriptFunction":
            self._refuse(
                Effect.STATE, f"{where} calls {spoken}, TorchScript that would specialise on other shapes"
            )
        elif isinstance(thing, ModuleType):
            self._judge_module(thing.__name__, where)
        elif isinstance(thing, type):
            self._judge_class(thing, where)
        elif isinstance(thing, functools.partial):
            self._kept(names[0], thing)
            self._judge(thing.func, [spoken], where, code)
        elif isinstance(thing, MethodType):
            self._judge_object(thing.__self__, names[:1], spoken, where)
            self._enter(thing, None)
        elif callable(thing) and isinstance(getattr(thing, "__name__", None), str):
            self._judge_callable(thing, spoken, where, code)
        elif thing is not None:
            self._judge_object(thing, names, spoken, where)

    def _whole_module(self, module: ModuleType, where: str, code: CodeType | None) -> None:
        """A module that is handed on as a whole: what is then done with it shows no name."""
        setting = code is not None and {"setattr", "delattr"} & set(code.co_names)
        if setting or not self._is_library(module.__name__):
            self._refuse(Effect.STATE, f"{where} hands on the module {module.__name__}")

    def _judge_module(self, name: str, where: str) -> None:
        top = name.partition(".")[0]
        if not self._is_library(name) or (top in self._own and top != "torch"):
            return
        effect = module_effect(name)
        if effect is not None:
            spoken = "torch.distributed" if name.startswith("torch.distributed") else top
            self._refuse(effect, f"{where} uses {spoken}")

    def _judge_setting(self, home: str, name: str, what: str) -> None:
        effect = setting_effect(name) if home.partition(".")[0] in ("torch", "numpy", "json") else None
        if effect is not None:
            self._refuse(effect, what)

    def _judge_class(self, kind: type, where: str) -> None:
        if issubclass(kind, BaseException) and not issubclass(kind, Exception):
            self._refuse(Effect.STATE, f"{where} uses {kind.__name__}, which could end the job")
        if issubclass(kind, weakref.ref | weakref.finalize):
            self._refuse(Effect.STATE, f"{where} has something done when an object goes ({kind.__name__})")
        if self._is_library(home_of(kind)):
            self._judge_module(home_of(kind), where)
            return
        self._kept(kind.__name__, kind)
        # Making one, taking it apart and asking about it run special methods that no code names.
        parents: list[type] = [*kind.__mro__, *type.mro(type(kind))]
        for each in parents:
            if not self._is_library(home_of(each)):
                for name, found in vars(each).items():
                    if name in CALLED_BY_TORCH or (name.startswith("__") and name.endswith("__")):
                        self._enter(found, None)

    def _judge_callable(self, thing: object, spoken: str, where: str, code: CodeType | None) -> None:
        home = getattr(thing, "__module__", None) or ""
        name = str(getattr(thing, "__name__", ""))
        owner = getattr(thing, "__self__", None)
        made_in = owner.__name__ if isinstance(owner, ModuleType) else home
        self._judge_setting(made_in, name, f"{where} calls {spoken}")
        if isinstance(thing, _WRAPPED_CALLS) and not isinstance(owner, ModuleType | type | None):
            self._judge_object(owner, [spoken], spoken, where)  # CALLS.append under a name of its own
        elif home in ("builtins", "io", "_io") and (name in BUILTINS or home != "builtins"):
            writes = name == "open" and code is not None and only_writes(code) and not tells(code.co_names)
            effect = Effect.OUTPUT if writes else BUILTINS.get(name, Effect.STATE)
            self._refuse(effect, f"{where} calls {spoken}")
        elif isinstance(thing, _CACHE) and not self._is_library(home):
            self._refuse(Effect.STATE, f"{where} fills the cache of {spoken}")
        elif home and self._is_library(home):
            if module_effect(home) is Effect.OUTPUT and not only_shows([name]):
                self._refuse(Effect.STATE, f"{where} calls {spoken}, which may tell what was shown")
            self._judge_module(home, where)
            self._enter(thing, None)  # it may only bear that name
        elif isinstance(thing, _WRAPPED_CALLS) and home:
            self._refuse(Effect.STATE, f"{where} calls {spoken}, compiled code that can't be read")
        else:
            self._enter(thing, None)

    def _judge_object(self, thing: object, names: list[str], spoken: str, where: str) -> None:
        kind = type(thing)
        self._iterators(thing, names, spoken, where)
        if is_tensor(thing, self._torch):
            self._kept(names[0], thing)
        elif is_module(thing, self._torch):
            self._kept(names[0], thing)
            self._enter(getattr(kind, "forward", None), thing)
        elif self._is_foreign(thing):
            self._uses(thing, names[1:], f"{where} uses {spoken}")
        else:
            self._kept(names[0], thing)
            for name in (*names[1:2], "__call__"):
                self._enter(inspect.getattr_static(kind, name, None), thing)

    def _is_foreign(self, thing: object) -> bool:
        """Of a class of an installed library's that is not trusted."""
        home = home_of(type(thing))
        top = home.partition(".")[0]
        return self._is_library(home) and top not in self._own and object_effect(thing) is not None

    def _uses(self, thing: object, names: list[str], what: str) -> None:
        effect = object_effect(thing) if only_shows(names) else Effect.STATE
        self._refuse(effect or Effect.STATE, f"{what} ({package_of(type(thing))})")

    def _kept(self, name: str, thing: object) -> None:
        """The guard keeps it, and what it holds may be called."""
        self.findings.globals.append((name, thing))
        self._reach.into(thing)

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
        if isinstance(held, FunctionType) and self._is_library(held.__module__ or ""):
            if name in _LOGGING_METHODS:
                self._refuse(_LOGGING_METHODS[name], f"{where} calls self.{name}")
            return
        if isinstance(held, FunctionType | MethodType | staticmethod | classmethod | property):
            self._enter(held, None if name in getattr(owner, "__dict__", {}) else owner)
        elif isinstance(held, type | ModuleType) or callable(held):
            self._judge(held, names, where)
        elif isinstance(held, functools.cached_property):
            self._enter(held.func, owner)
        elif self._is_foreign(held):
            self._uses(held, names[1:], f"{where} uses self.{name}")
        elif len(names) > 1:
            self._enter(inspect.getattr_static(type(held), names[1], None), held)

    def _iterators(self, thing: object, names: list[str], spoken: str, where: str) -> None:
        """A generator, a counter, an open iterator: whoever takes from it can't give back."""
        for name in (*names[1:], None):
            kind = type(thing)
            if hasattr(kind, "__next__") and is_library(home_of(kind)) and not isinstance(thing, io.IOBase):
                self._refuse(Effect.STATE, f"{where} takes from {spoken}, an iterator")
            if name is None:
                return
            thing = getattr(thing, "__dict__", {}).get(name)
            spoken = f"{spoken}.{name}"

    def _refuse(self, effect: Effect, what: str) -> None:
        refusal = Refusal(effect, what)
        if refusal not in self.findings.refusals:
            self.findings.refusals.append(refusal)


def _made_with(function: FunctionType) -> list[object]:
    """What may differ between functions of the same code."""
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return [function.__globals__, *_around(function), *defaults]


def _around(function: FunctionType) -> Iterable[object]:
    return map(content_of, function.__closure__ or ())
