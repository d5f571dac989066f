"""What a second run of forward code would do: show something once more, or change the job's state.

Output may be overridden (`--probe`): it only shows twice. State never: what nobody can put back would
change training. In: names of modules, objects. Out: `Effect`, `Refusal`.
"""

from __future__ import annotations

import enum
import functools
import io
import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import cast

from .installed_code import home_of, is_library, is_own, is_standard, package_of


class Effect(enum.Enum):
    """Of running code once more."""

    OUTPUT = "output"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why code is not run again; `what` is one clause that says what it does and where."""

    effect: Effect
    what: str


# fmt: off
TRUSTED = frozenset((
    "torch", "torchvision", "torchaudio", "torch_geometric", "torch_scatter", "torch_sparse", "einops",
    "timm", "transformers", "peft", "diffusers", "lightning", "pytorch_lightning", "lightning_utilities",
    "torchmetrics", "jaxtyping", "beartype", "json",
    "math", "cmath", "numpy", "numbers", "random", "statistics", "string", "re", "time", "operator",
    "builtins", "typing", "typing_extensions", "types", "enum", "abc", "dataclasses", "collections",
    "functools", "itertools", "copy", "contextlib", "inspect", "weakref", "warnings",
    "argparse", "omegaconf", "ml_collections", "easydict",
))
_SHOWING = frozenset((
    "logging", "wandb", "tensorboard", "tensorboardX", "tqdm", "rich", "loguru", "mlflow", "comet_ml",
    "neptune", "clearml", "aim", "swanlab", "pprint", "traceback",
))
BUILTINS = {
    "print": Effect.OUTPUT, "open": Effect.STATE, "input": Effect.STATE, "exec": Effect.STATE,
    "eval": Effect.STATE, "compile": Effect.STATE, "breakpoint": Effect.STATE, "__import__": Effect.STATE,
    "globals": Effect.STATE, "vars": Effect.STATE,
}
# Methods and functions that only show; whatever else is asked of what shows may tell how often it did.
_SHOWS = frozenset((
    "write", "writelines", "flush", "debug", "info", "warning", "warn", "error", "critical", "exception",
    "log", "trace", "success", "print", "pprint", "pp", "print_exc", "print_stack", "rule", "log_metric",
    "log_metrics", "log_param", "add_scalar", "add_scalars", "add_histogram", "add_image", "add_text",
    "add_figure",
))
_TELLS = frozenset(("tell", "seek", "fileno", "truncate", "detach", "buffer", "raw"))  # of a file
# Ways past every name: what they lead to is not what the guard keeps.
BACK_DOORS = frozenset((
    "__globals__", "f_globals", "f_locals", "f_back", "tb_frame", "__code__", "__defaults__",
    "__kwdefaults__", "__closure__", "cell_contents", "__builtins__",
))
_SETTINGS = ("set_", "enable_", "use_deterministic")  # what torch and NumPy keep for the whole process
_RESTORED = ("set_grad_enabled", "set_rng_state")
_FILES = frozenset(("save", "savez", "savez_compressed", "savetxt", "dump"))
_CHANGED_IN_PLACE = frozenset(("_operator", "_functools", "_heapq", "_bisect", "_struct", "_collections",
    "_statistics", "_warnings", "_abc"))
# fmt: on


def module_effect(name: str) -> Effect | None:
    """Of code that uses an installed module; None where it is trusted to have none."""
    top = name.partition(".")[0]
    if name.startswith("torch.distributed"):
        return Effect.STATE
    if top in _SHOWING or name.startswith("torch.utils.tensorboard"):
        return Effect.OUTPUT
    return None if top in TRUSTED or top in _CHANGED_IN_PLACE else Effect.STATE


class Libraries:
    """Whose code is not read: installed packages, but for unknown ones that modules of the job come from."""

    def __init__(self, kinds: Iterable[type] = ()) -> None:
        self._read: set[str] = set()
        self.read(kinds)

    def read(self, kinds: Iterable[type]) -> None:
        """Modules of these classes are the job's."""
        tops = {package_of(kind) for kind in kinds}
        installed = {top for top in tops if is_library(top) and not is_standard(top) and not is_own(top)}
        self._read |= {top for top in installed if module_effect(top) is not None}

    def hold(self, name: str) -> bool:
        """Whether a module of this name is of one."""
        return is_library(name) and name.partition(".")[0] not in self._read


def only_shows(names: Sequence[str]) -> bool:
    """Whether code that takes these attributes, one of the other, of what shows asks nothing else of it."""
    return bool(names) and names[-1] in _SHOWS


def tells(names: Iterable[str]) -> bool:
    """Whether code with these names asks a file where it stands."""
    return not _TELLS.isdisjoint(names)


def kept_by_the_job() -> str | None:
    """Which object of the job's own gets what is shown, and may count it; None where there is none."""
    for stream in (sys.stdout, sys.stderr):
        if _is_of_the_job(stream):
            return f"what is printed goes to a {type(stream).__name__} of the job's own"
    through: list[object] = [logging.getLogRecordFactory()]
    for logger in (logging.root, *list(logging.root.manager.loggerDict.values())):
        handlers = list(getattr(logger, "handlers", ()))
        through += logger, *handlers
        through += [one for owner in (logger, *handlers) for one in getattr(owner, "filters", ())]
        for handler in handlers:
            if package_of(type(handler)) == "logging":  # another library's own is as it has made it
                through += [getattr(handler, name, None) for name in ("formatter", "stream")]
                if hasattr(handler, "buffer") or hasattr(handler, "queue"):
                    return f"what is logged is kept by a {type(handler).__name__}"
    for each in through:
        if each is not None and _is_of_the_job(each):
            return f"what is logged goes through a {type(each).__name__} of the job's own"
    return None


def _is_of_the_job(thing: object) -> bool:
    """Its code, or a method that was put into it; or what it is told can be read there again."""
    if isinstance(thing, FunctionType | MethodType):
        function = cast(FunctionType, getattr(thing, "__func__", thing))
        return not is_library(str(function.__globals__.get("__name__")))
    if isinstance(thing, functools.partial):
        return _is_of_the_job(thing.func)
    if isinstance(thing, BuiltinFunctionType):  # `flush` of a stream, or `append` of a list
        return not isinstance(thing.__self__, io.IOBase) or _is_of_the_job(thing.__self__)
    kind = thing if isinstance(thing, type) else type(thing)
    below = getattr(thing, "buffer", None) if kind is io.TextIOWrapper else None
    if isinstance(thing, io.StringIO) or isinstance(below, io.BytesIO) or not is_library(home_of(kind)):
        return True
    put_in = [] if thing is kind else getattr(thing, "__dict__", {}).items()
    methods = [each for name, each in put_in if callable(each) and hasattr(kind, name)]
    return any(map(_is_of_the_job, methods))


def setting_effect(name: str) -> Effect | None:
    """Of a function of a trusted module, by its name: settings of the process, files written."""
    if name in _FILES:
        return Effect.OUTPUT
    return Effect.STATE if name.startswith(_SETTINGS) and name not in _RESTORED else None


def object_effect(thing: object) -> Effect | None:
    """Of code that uses an object of a library's."""
    if isinstance(thing, io.IOBase):
        return Effect.OUTPUT if _only_written(thing) else Effect.STATE
    return module_effect(home_of(type(thing)))


def _only_written(file: io.IOBase) -> bool:
    """A log: what a replay adds to it is seen, and nothing reads from where it stands."""
    try:
        return file.writable() and not file.readable()
    except ValueError:  # closed
        return True
