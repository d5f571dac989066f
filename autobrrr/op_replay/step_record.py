"""A recorded step as a program: calls of operators in order, and the tensors that flow between them.

In: the JSON of torch's ExecutionTraceObserver. Out: `Program`. Composite operators are left out in favor of
what they call, as autograd sees it. Tensors are told apart by storage and geometry, since torch gives the
number of a freed one to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ..agent.wire.recording import COLLATING, STATE, WEIGHTS

LOADING = "enumerate(DataLoader)"
STEPPING = "Optimizer.step#"
NO_WORK = ("profiler::", "c10d::")  # collectives move gradients, whose size no batch changes
RANDOM = ("aten::randn", "aten::rand", "aten::randint")
ATTENTION = ("aten::scaled_dot_product_attention", "aten::_softmax")
# The output and its dimension that count samples, or several of each; of a recurrent layer, its state's.
SAMPLES = {f"aten::{name}": (1, 1) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}
SAMPLES |= {f"aten::{name}": (0, 0) for name in ("lstm_cell", "gru_cell", "rnn_tanh_cell")}
SAMPLES |= dict.fromkeys(("aten::convolution", "aten::batch_norm", *ATTENTION, *RANDOM), (0, 0))
_OBSERVER = "[pytorch|profiler|"  # nodes of its own
_NONE = "<None>"
MOST_LEFT, LEFT_OUT = 3, 0.1  # calls in a row that may not have been recorded; of all, at most
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    **dict.fromkeys(("long int", "long"), "int64"),
    "int": "int32",
    **dict.fromkeys(("short int", "short"), "int16"),
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}


@dataclass(slots=True, eq=False)
class StepValue:
    """A tensor of the step, as it was."""

    number: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    item_bytes: int
    given: bool  # it was there before, or came from what was not recorded
    owned: bool = False  # by the model or an optimizer: no batch changes its shape
    weight: bool = False
    on_device: bool = False
    base: StepValue | None = None  # whose memory it shares
    last_use: int = -1


@dataclass(slots=True, eq=False)
class StepCall:
    """One operator call. A tensor among the arguments is a `Value`."""

    name: str  # with overload
    args: tuple[Any, ...]
    outputs: list[StepValue | None]
    at: int  # its place among all that was recorded, by which its duration is found
    done_with: list[StepValue] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class RecordedStep:
    """The calls of a step, and its values."""

    calls: list[StepCall]
    values: list[StepValue]
    names: list[str]  # of all that was recorded, in the order in which it began; WEIGHTS: by the recorder
    samples: set[int] = field(default_factory=set)  # what operators say of how many there are
    lengths: set[int] = field(default_factory=set)  # of sequences
    random: list[tuple[int, ...]] = field(default_factory=list)  # shapes of data that the step draws


def read(torch: ModuleType, document: Mapping[str, Any]) -> RecordedStep:
    """The program of a document.

    Raises:
        KeyError, ValueError: it has another form.
    """
    return _Reader(torch, document).read()


@dataclass(frozen=True, slots=True)
class _Written:
    """A tensor as the observer tells of it."""

    storage: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    on_device: bool


class _Reader:
    def __init__(self, torch: ModuleType, document: Mapping[str, Any]) -> None:
        self._torch = torch
        self._nodes = sorted(
            (node for node in document["nodes"] if node["id"] != node["ctrl_deps"]),
            key=lambda node: int(node["id"]),
        )
        self._children: dict[int, list[dict[str, Any]]] = {}
        ours: set[int] = set()  # what the recorder did itself
        for node in self._nodes:
            self._children.setdefault(node["ctrl_deps"], []).append(node)
            if node["name"] in (WEIGHTS, STATE) or node["ctrl_deps"] in ours:
                ours.add(node["id"])
        self._place = {node["id"]: at for at, node in enumerate(self._nodes)}
        self._live: dict[int, dict[_Written, StepValue]] = {}  # by storage
        self._owned: dict[int, str] = {}  # by storage: in which range
        names = [WEIGHTS if node["id"] in ours else node["name"] for node in self._nodes]
        self._program = RecordedStep([], [], names)

    def read(self) -> RecordedStep:
        for node in self._nodes:
            if node["ctrl_deps"] not in self._place:
                self._walk(node)
        program = self._program
        for index, call in enumerate(program.calls):
            for value in tensors_in((*call.args, *call.outputs)):
                value.last_use = index
                if value.base is not None:
                    value.base.last_use = index
        for value in program.values:
            if value.last_use >= 0 and not value.given:
                program.calls[value.last_use].done_with.append(value)
        return program

    def _walk(self, node: dict[str, Any]) -> None:
        name = node["name"]
        if name.startswith(LOADING):
            return
        children = self._children.get(node["id"], [])
        if name in (WEIGHTS, STATE):
            for written in _tensors([_side(each["inputs"]) for each in children]):
                self._owned.setdefault(written.storage, name)
            return
        schema = _attribute(node, "op_schema")
        if schema and "::" in name:
            if name.startswith(NO_WORK):
                return
            overload = schema.partition("(")[0]
            if name in SAMPLES:
                self._count(node)
            if not (self._is_composite(overload) and any(_attribute(each, "op_schema") for each in children)):
                self._call(node, overload)
                return
        for each in children:
            self._walk(each)

    def _count(self, node: dict[str, Any]) -> None:
        """What an operator says of samples; of attention, a product's rows and columns are places."""
        place, dimension = SAMPLES[node["name"]]
        shape = list(_tensors(_side(node["outputs"])))[place].shape
        if node["name"] in RANDOM:
            self._program.random.append(shape)
            return
        if node["name"] in ATTENTION:
            if len(shape) < 3 or (node["name"] == "aten::_softmax" and shape[-1] != shape[-2]):
                return
            self._program.lengths.add(shape[-2])
            if len(set(shape)) == 1:  # heads and samples are as many as places, by chance
                return
        self._program.samples.update(shape[dimension : dimension + 1])

    def _is_composite(self, overload: str) -> bool:
        has = self._torch._C._dispatch_has_kernel_for_dispatch_key
        try:
            return bool(has(overload, "CompositeImplicitAutograd"))
        except RuntimeError:  # an operator of the job's own
            return False

    def _call(self, node: dict[str, Any], overload: str) -> None:
        given = _side(node["inputs"])
        args = tuple(map(self._argument, given))
        taken = {written.storage for written in _tensors(given)}
        made = [
            self._made(one, taken) if isinstance(one, _Written) else None
            for one in flat(_side(node["outputs"]))
        ]
        self._program.calls.append(StepCall(overload, args, made, self._place[node["id"]]))

    def _argument(self, thing: Any) -> Any:
        if isinstance(thing, list):
            return [self._argument(one) for one in thing]
        if not isinstance(thing, _Written):
            return thing
        known = self._live.setdefault(thing.storage, {})
        if thing not in known:
            known[thing] = self._value(thing, given=True)
        return known[thing]

    def _made(self, written: _Written, taken: set[int]) -> StepValue:
        known = self._live.setdefault(written.storage, {})
        if written.storage not in taken:
            known.clear()
        if written not in known:
            other = next(iter(known.values()), None)
            known[written] = self._value(written, given=False)
            known[written].base = other.base or other if other is not None else None
        return known[written]

    def _value(self, written: _Written, *, given: bool) -> StepValue:
        made = StepValue(
            number=len(self._program.values),
            shape=written.shape,
            # One without storage is sparse, and nobody says what it lists.
            stride=written.stride if written.storage else (),
            dtype=written.dtype,
            item_bytes=getattr(self._torch, written.dtype).itemsize,
            given=given,
            owned=given and written.storage in self._owned,
            weight=given and self._owned.get(written.storage) == WEIGHTS,
            on_device=written.on_device,
        )
        self._program.values.append(made)
        return made


def aligned(names: Sequence[str], times: Sequence[Sequence[Any]]) -> list[Sequence[Any]] | None:
    """The times in the places of a record's names; None where the step that was timed ran something else.

    A call that an exception ends, as a checkpoint does where it computes again, is timed, not recorded.
    """
    rest = [one for one in times if not one[0].startswith(("__start_profile", STEPPING, COLLATING))]
    found: list[Sequence[Any]] = []
    at = left = 0
    for name in names:
        if name.startswith((WEIGHTS, _OBSERVER, STEPPING)):
            found.append(("", 0, 0, "other", 0))
            continue
        ahead = [one[0] for one in rest[at : at + MOST_LEFT + 1]]
        if name not in ahead:
            return None
        left += ahead.index(name)
        at += ahead.index(name) + 1
        found.append(rest[at - 1])
    return found if left <= LEFT_OUT * len(rest) and at == len(rest) else None


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step in the job that ran what the recorded one did: all of it, and what is no operator."""

    step_ns: float
    loading_ns: float
    collating_ns: float  # of it, what is not known to be items; all, where no item was seen
    held_ns: float  # Python at length between operators
    calls: list[Sequence[Any]]  # as in `recording.Times`


def timed_steps(program: RecordedStep, timed: Sequence[tuple[int, Sequence[Any], int]]) -> list[TimedStep]:
    found = []
    for step_ns, times, held_ns in timed:
        by_place = aligned(program.names, times)
        if by_place is not None:
            calls = [by_place[call.at] for call in program.calls]
            loading_ns = max((one[1] for one in times if one[0].startswith(LOADING)), default=0)
            collating_ns = sum(one[1] for one in times if one[0] == COLLATING) or loading_ns
            found.append(TimedStep(step_ns, loading_ns, collating_ns, held_ns, calls))
    return found


def flat(thing: Any) -> Iterator[Any]:
    """What is in lists and tuples, however deep."""
    if isinstance(thing, (list, tuple)):
        for each in thing:
            yield from flat(each)
    else:
        yield thing


def tensors_in(things: Sequence[Any]) -> Iterator[StepValue]:
    """All values in arguments."""
    return (one for one in flat(things) if isinstance(one, StepValue))


def _side(side: Mapping[str, Any]) -> list[Any]:
    """What went into a call, or came out: tensors as `_Written`, lists, and the rest as it is."""
    columns = (side[name] for name in ("values", "types", "shapes", "strides"))
    return [_parsed(*one) for one in zip(*columns, strict=True)]


def _parsed(value: Any, kind: str, shape: Any, stride: Any) -> Any:
    if kind.startswith("Tensor"):
        dtype = _DTYPES.get(kind[len("Tensor(") : -1])
        if dtype is None or not isinstance(value, list) or len(value) < 6:
            return None
        return _Written(value[1], value[2], tuple(shape), tuple(stride), dtype, value[5] != "cpu")
    if not kind.startswith("GenericList"):
        return None if value == _NONE else value
    kinds = re.findall(r"[^,\[\]]+(?:\[[^\]]*\])?", kind[len("GenericList[") : -1])  # some are lists
    if len(kinds) != len(value) and value:
        raise ValueError("a list was cut")
    if value and any(one.startswith(("Tensor", "None")) for one in kinds):
        return [_parsed(*one) for one in zip(value, kinds, shape, stride, strict=True)]
    return [None if one == _NONE else one for one in value]


def _tensors(things: Sequence[Any]) -> Iterator[_Written]:
    return (one for one in flat(things) if isinstance(one, _Written))


def _attribute(node: Mapping[str, Any], name: str) -> str:
    return next((str(one["value"]) for one in node["attrs"] if one["name"] == name), "")
