"""What a dataset holds, through transforms, wrapped datasets, closures and globals: generators and handles.

A generator of its own makes its items random, and would be advanced by reading one. A handle (an open file, a
database) is shared by forked workers together with its position: they would read each other's places. What
an iterator or a queue has given can't be put back. Classes of the user's are looked into, and of modules what
the code names: it may draw random numbers for some items, or in some epochs. What is made in C keeps its
state where it can't be seen, but for types that are known not to change.
"""

from __future__ import annotations

import functools
import gc
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import (
    BuiltinFunctionType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, cast
from weakref import ref

from ...job_code.bytecode_names import codes
from ...job_code.held_objects import ASKING, attributes_of, content_of, slots_of
from ...job_code.installed_code import home_of, is_library, is_own, is_standard, package_of
from ...job_code.name_lookups import Place, Reads, hidden_lookup, names_in, written_in
from ...job_code.reachable_code import CALLED_BY_TORCH, is_implicit
from ...job_state.module_state import raw_dict
from ...job_state.unseen_state import (
    frame_parts,
    is_atom,
    may_change_unseen,
    moves_on,
)
from ...live_torch.handler_errors import let_through
from ..registry import Refused
from .dataset_contents import objects_in

MOST_OBJECTS = 20_000
_KNOWN = frozenset((  # packages whose own code is not looked into
    "PIL", "accelerate", "albumentations", "cv2", "datasets", "einops", "fsspec", "huggingface_hub",
    "lightning", "numpy", "pandas", "pyarrow", "pytorch_lightning", "safetensors", "scipy", "sentencepiece",
    "sklearn", "timm", "tokenizers", "torch", "torchaudio", "torchtext", "torchvision", "tqdm",
    "transformers", "yaml",
))  # fmt: skip
_HANDLES = ("h5py", "sqlite3", "lmdb", "tables", "netCDF4", "av")
_ASKS = "get_worker_info"
_WRITES = frozenset(("unlink", "rmtree", "write_text", "write_bytes", "savez", "savez_compressed", "savetxt"))
_MODES = frozenset(f"{way}{kind}" for way in ("w", "a", "x", "r+", "w+", "a+") for kind in ("", "b", "t"))
# fmt: off
_DRAWS = frozenset((  # "random": the module, numpy's, or a function of it
    "random", "secrets", "urandom", "default_rng", "rand", "randn", "randint", "randperm", "rand_like",
    "randn_like", "randint_like", "bernoulli", "multinomial", "dropout", "random_", "uniform_", "normal_",
    "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_",
))
# fmt: on
_LMDB = ("Environment", "Transaction", "Cursor")  # its types say that they are builtins
_CONTENTS = (("numpy", "ndarray"), ("array", "array"), ("builtins", "bytearray"))
_VIEWS: tuple[type, ...] = (
    *ASKING, functools._lru_cache_wrapper, MappingProxyType, type({}.keys()), type({}.values()),
    type({}.items()),
)  # fmt: skip
_AWAY = "holds a weak reference, and what that leads to may change unseen"
_WRAPPERS = (staticmethod, classmethod, property, functools.cached_property)  # of a class's functions
_ITERABLE = (list, tuple, set, frozenset, deque)
_LOCKING = ("_thread", "threading", "multiprocessing.synchronize")


@dataclass(slots=True)
class Held:
    """What was met."""

    random: bool = False
    handles: list[str] = field(default_factory=list)  # names of their types
    sources: list[str] = field(default_factory=list)  # of what moves on as it is read
    writes: list[str] = field(default_factory=list)  # functions that write or remove files
    locks: list[str] = field(default_factory=list)  # which a worker may be forked with while they are held
    asks_worker: bool = False  # its code asks which worker it runs in
    draws: bool = False  # code that can run for an item names what draws random numbers
    unseen: list[str] = field(default_factory=list)  # what may change where nobody sees it: a clause each
    parts: list[object] = field(default_factory=list, compare=False)  # what was looked into
    contents: list[object] = field(default_factory=list, compare=False)  # tensors and arrays
    reads: list[Place] = field(default_factory=list, compare=False)  # where code looks names up


def held_by(dataset: object) -> Held:
    """Look through a dataset.

    Raises:
        Refused: it holds more than can be looked through, or what raises something as it is looked at.
    """
    try:
        return _looked_through(dataset)
    except Refused:
        raise
    except Exception as error:  # noqa: BLE001  a class of the job's may answer as it likes
        let_through(error)
        raise Refused(f"the dataset holds what can't be looked into: {type(error).__name__}") from None


def _looked_through(dataset: object) -> Held:
    found, seen, waiting, code = Held(), set[int](), [dataset], _ItemCode()
    kept: list[object] = []  # an id in `seen` is no other object's
    weak: list[ref[object]] = []
    reads = Reads(is_known)

    def is_new(value: object) -> bool:
        return id(value) not in seen and not is_atom(type(value))

    while waiting or (waiting := list(filter(is_new, reads.members()))):
        value = waiting.pop()
        if not is_new(value):
            continue
        seen.add(id(value))
        kept.append(value)
        if len(seen) > MOST_OBJECTS:
            raise Refused("the dataset holds more objects than can be looked through")
        if isinstance(value, ModuleType):
            reads.whole(value)
        elif is_generator(value):
            found.random = True
        elif _is_handle(value):
            found.handles.append(type(value).__name__)
        elif moves_on(value):
            found.sources.append(type(value).__name__)
        elif has_contents(value):
            found.contents.append(value)
            if attributes_of(value):
                found.parts.append(value)
            waiting += _beside_contents(value)
        elif home_of(type(value)) in _LOCKING and hasattr(value, "acquire"):
            found.locks.append(type(value).__name__)
        elif not _is_data(value):
            found.parts.append(value)
            gives_all = _gives_referents(value) or frame_parts(value) is not None
            if isinstance(value, ref):
                weak.append(value)
            if not gives_all and may_change_unseen(value):
                found.unseen.append(f"holds a {type(value).__name__}, which may change unseen")
            if isinstance(value, FunctionType) and not is_known(written_in(value)):
                names = names_in(value.__code__)
                found.asks_worker = found.asks_worker or _ASKS in names
                if _writes(value, names):
                    found.writes.append(value.__qualname__)
            inside = list(_inside(value, reads))
            code.take(value, inside)
            waiting += inside
    found.unseen += [_AWAY for each in weak if _leads_away(each, seen)]
    found.reads = reads.places
    for function in code.reached():
        found.draws = found.draws or not names_in(function.__code__).isdisjoint(_DRAWS)
        hidden = hidden_lookup(function, reads.modules)
        if hidden is not None:
            found.unseen.append(
                f"looks names up by {hidden} in {function.__qualname__}, which shows no reading"
            )
    return found


class _ItemCode:
    """The user's functions that can run when an item is read: not the `__init__` of what is there already."""

    def __init__(self) -> None:
        self._waiting: list[FunctionType] = []
        self._by_name: dict[str, list[FunctionType]] = {}

    def take(self, holder: object, inside: Iterable[object]) -> None:
        """Functions that a thing holds: those of a class, or that code names, are called by their names."""
        if isinstance(holder, type):
            for name, member in vars(holder).items():
                self._member(name, member)
        if isinstance(holder, (type, *_WRAPPERS)):
            return  # by the name that the class has for it, whatever the function's own
        names = names_in(holder.__code__) if isinstance(holder, FunctionType) else set[str]()
        for each in inside:
            if isinstance(each, type) and isinstance(
                holder, FunctionType
            ):  # code that names a class makes one
                made = [vars(each).get(name) for name in ("__init__", "__new__", "__post_init__")]
                self._named(each.__name__, made)
            if not isinstance(each, FunctionType) or is_known(written_in(each)):
                continue
            name = each.__name__
            if name in names:
                self._named(name, [each])
            else:
                self._waiting.append(each)

    def _member(self, name: str, member: object) -> None:
        """Of a class: those that are called without being named are called."""
        parts = [member]
        if issubclass(type(member), _WRAPPERS):  # of anything else, code of the job's would answer
            parts += [getattr(member, part, None) for part in ("__func__", "fget", "fset", "func")]
        found = [each for each in parts if isinstance(each, FunctionType) and not is_known(written_in(each))]
        if is_implicit(name) or name in CALLED_BY_TORCH:
            self._waiting += found
        else:
            self._named(name, found)

    def _named(self, name: str, found: Iterable[object]) -> None:
        self._by_name.setdefault(name, []).extend(each for each in found if isinstance(each, FunctionType))

    def reached(self) -> Iterator[FunctionType]:
        """Each of them."""
        waiting, by_name = list(self._waiting), dict(self._by_name)
        while waiting:
            function = waiting.pop()
            yield function
            for name in names_in(function.__code__) & by_name.keys():
                waiting += by_name.pop(name)


def is_generator(value: object) -> bool:
    """Whether a value draws random numbers from a state of its own."""
    return any(
        home_of(kind).startswith("numpy.random")
        or (home_of(kind), kind.__name__)
        in (("random", "Random"), ("torch._C", "Generator"), ("torch", "Generator"))
        for kind in type(value).__mro__
    )


def _is_handle(value: object) -> bool:
    kind = type(value)
    if package_of(kind) in _HANDLES:
        return True
    if str(kind.__module__) == "builtins" and kind.__name__ in _LMDB:
        return True
    tell = getattr(kind, "fileno", None)
    if not callable(tell):
        return False
    try:
        return cast("Callable[[object], int]", tell)(value) > 2  # not the process's own streams
    except Exception as error:  # noqa: BLE001  closed, or in memory
        let_through(error)
        return False


def has_contents(value: object) -> bool:
    """A tensor, or an array: of numpy, of Python, of bytes."""
    kind = type(value)
    named = {(home_of(each), each.__name__) for each in kind.__mro__}
    return hasattr(kind, "element_size") or not named.isdisjoint(_CONTENTS)


def is_known(module_name: str) -> bool:
    """Whether a module is the interpreter's, or of a package whose code is not looked into."""
    top = module_name.partition(".")[0]
    return is_library(module_name) and (is_standard(top) or top in _KNOWN or is_own(top))


def _is_data(value: object) -> bool:
    """What leads to the whole process, and what is nobody's own."""
    if isinstance(value, type):
        return is_known(home_of(value))
    return package_of(type(value)) == "logging"


def _gives_referents(value: object) -> bool:
    """Whether a value leads to others that only the garbage collector finds."""
    return isinstance(value, _VIEWS) or type(value).__name__ == "_lru_list_elem"  # what a cache keeps, too


def _leads_away(weak: ref[object], seen: set[int]) -> bool:
    """Whether it is to what nothing else holds, and no class: looked into, that would be kept alive."""
    value = ref.__call__(weak)
    return not isinstance(value, type | None) and id(value) not in seen


def _beside_contents(value: object) -> Iterator[object]:
    """Of a tensor or an array: its attributes, and the objects that lie in it."""
    yield from (attributes_of(value) or {}).values()
    yield from _of_many(objects_in(value))


def _inside(value: object, reads: Reads) -> Iterator[object]:
    if isinstance(value, type):
        yield from vars(value).values()
        yield from (kind for kind in (*value.__mro__, type(value)) if not is_known(home_of(kind)))
        return
    if isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset)
    elif isinstance(value, functools.cached_property):
        yield value.func  # not its lock: Python's own
        return
    elif isinstance(value, dict):
        for each in (raw_dict(value), raw_dict(value).values()):
            yield from _of_many(list(each))
        yield getattr(value, "default_factory", None) if isinstance(value, defaultdict) else None
    elif isinstance(value, _ITERABLE):
        base = cast("Any", next(each for each in _ITERABLE if isinstance(value, each)))
        yield from _of_many(list(base.__iter__(value)))  # whatever its class gives out
    elif isinstance(value, FunctionType):
        yield from _of_function(value, reads)
    elif isinstance(value, (MethodType, BuiltinFunctionType)):
        yield from (getattr(value, name, None) for name in ("__self__", "__func__"))
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif _gives_referents(value):
        yield from gc.get_referents(value)
    parts = frame_parts(value)
    yield from (attributes_of(value) or {}).values() if parts is None else parts
    yield from (kept for _, kept in slots_of(value))
    for kind in type(value).__mro__:
        if not is_known(home_of(kind)):
            yield kind


def _of_many(values: list[object]) -> list[object]:
    """What there is to look into; of tuples, what lies in them: long lists are mostly of names and pairs."""
    found: list[object] = []
    while values:
        others = {kind for kind in set(map(type, values)) - {tuple} if not is_atom(kind)}
        found += [each for each in values if type(each) in others] if others else []
        tuples = cast("list[tuple[object]]", [each for each in values if type(each) is tuple])
        inner = itertools.chain.from_iterable
        kinds = {kind for kind in set(map(type, inner(tuples))) if not is_atom(kind)}
        unique = {id(each): each for each in inner(tuples) if type(each) in kinds} if kinds else {}
        values = list(unique.values())
    return found


def _of_function(function: FunctionType, reads: Reads) -> Iterator[object]:
    """What a function of the user's can reach: its cells, its defaults, the globals that it names."""
    yield from map(content_of, function.__closure__ or ())
    yield from (function.__defaults__, function.__kwdefaults__)
    if not is_known(written_in(function)):
        yield from reads.of(function)


def _writes(function: FunctionType, names: set[str]) -> bool:
    """Whether a function opens a file to write, or removes one, as far as its names say."""
    constants = {each for code in codes(function.__code__) for each in code.co_consts if type(each) is str}
    removes = "os" in names and not names.isdisjoint(("remove", "rename"))
    saves = "save" in names and not names.isdisjoint(("np", "numpy", "torch"))
    opens = "open" in names and not constants.isdisjoint(_MODES)
    return opens or removes or saves or not names.isdisjoint(_WRITES)
