"""What a second run of forward code would do: show something once more, or change the job's state.

Output may be overridden (`--probe`): it only shows twice. State never: what nobody can put back would
change training. In: names of modules, objects. Out: `Effect`, `Refusal`.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import io
import sys
import types
import weakref
from dataclasses import dataclass


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
    "timm", "transformers", "peft", "diffusers", "lightning", "pytorch_lightning", "jaxtyping", "beartype",
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
# Ways past every name: what they lead to is not what the guard keeps.
BACK_DOORS = frozenset((
    "__globals__", "f_globals", "f_locals", "f_back", "tb_frame", "__code__", "__defaults__",
    "__kwdefaults__", "__closure__", "cell_contents", "__builtins__",
))
_SETTINGS = ("set_", "enable_", "use_deterministic")  # what torch and NumPy keep for the whole process
_RESTORED = ("set_grad_enabled", "set_rng_state")
_FILES = frozenset(("save", "savez", "savez_compressed", "savetxt"))
_CHANGED_IN_PLACE = frozenset(("_operator", "_functools", "_heapq", "_bisect", "_struct", "_collections",
    "_statistics", "_warnings", "_abc"))
# Classes of the standard library whose objects keep nothing that a replay could change.
_PLAIN_HOMES = frozenset((
    "typing", "types", "enum", "abc", "_abc", "dataclasses", "re", "_sre", "pathlib", "decimal", "fractions",
    "uuid", "numbers", "inspect", "ast", "string", "operator", "_operator", "zoneinfo", "collections",
    "argparse",
))
# fmt: on
_PLAIN_TYPES: tuple[type, ...] = (
    range,
    slice,
    property,
    staticmethod,
    classmethod,
    types.ModuleType,
    types.CodeType,
    types.MappingProxyType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GenericAlias,
    types.UnionType,
    type(Ellipsis),
    type(NotImplemented),
    enum.Enum,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    weakref.ref,
    contextlib.nullcontext,
    contextlib.ContextDecorator,
    contextlib.AbstractContextManager,
)
_LOCKS = ("lock", "RLock")
_KEPT_BASES = (object, dict, list, set, frozenset, tuple, bytearray, int, float, complex, str, bytes, bool)


def module_effect(name: str) -> Effect | None:
    """Of code that uses an installed module; None where it is trusted to have none."""
    top = name.partition(".")[0]
    if name.startswith("torch.distributed"):
        return Effect.STATE
    if top in _SHOWING or name.startswith("torch.utils.tensorboard"):
        return Effect.OUTPUT
    return None if top in TRUSTED or top in _CHANGED_IN_PLACE else Effect.STATE


def setting_effect(name: str) -> Effect | None:
    """Of a function of a trusted module, by its name: settings of the process, files written."""
    if name in _FILES:
        return Effect.OUTPUT
    return Effect.STATE if name.startswith(_SETTINGS) and name not in _RESTORED else None


def object_effect(thing: object) -> Effect | None:
    """Of code that uses an object of a library's."""
    if isinstance(thing, io.IOBase):
        return Effect.OUTPUT if _only_written(thing) else Effect.STATE
    return module_effect(type(thing).__module__)


def is_opaque(thing: object) -> bool:
    """Whether an object holds state that can be seen nowhere, so that nobody could put it back.

    That is: of a type of the interpreter or the standard library (or built on one) that is neither kept
    by value, nor known to be without state, nor only written to.
    """
    if isinstance(thing, memoryview):
        return not thing.readonly
    return any(_hides(kind) for kind in type(thing).__mro__) and object_effect(thing) is not Effect.OUTPUT


def _hides(kind: type) -> bool:
    """Whether objects of a class keep something beside attributes, slots and what a container holds."""
    top = kind.__module__.partition(".")[0]
    if kind in _KEPT_BASES or top not in sys.stdlib_module_names or top == "__main__" or top in _PLAIN_HOMES:
        return False
    plain = any(base in _PLAIN_TYPES for base in kind.__mro__)
    return not (plain or (top == "_thread" and kind.__name__ in _LOCKS))


def _only_written(file: io.IOBase) -> bool:
    """A log: what a replay adds to it is seen, and nothing reads from where it stands."""
    try:
        return file.writable() and not file.readable()
    except ValueError:  # closed
        return True
