"""Runs the calls of a recorded step on tensors of our own, at any batch size, and times each.

In: a program. Out: the thread's CPU time of each call. Every tensor is made up. Whole numbers are all 0, so
that no index reaches outside of its data. Outputs feed inputs as in the step: caches, allocations and
lifetimes are as they were there.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import thread_time_ns
from types import ModuleType
from typing import Any

from .step_record import RecordedStep, StepCall, StepValue, flat, tensors_in

Shape = tuple[int, ...]
VIEWS = frozenset(f"aten::{name}" for name in ("view", "_unsafe_view", "reshape", "_reshape_alias"))
SIZES = frozenset(("size", "sizes", "shape", "input_size", "input_sizes", "self_sizes", "split_sizes"))
COUNTS = {"aten::randperm": "n", "aten::eye": "n", "aten::split": "split_size"}
_SCALAR_TYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "complex32", "complex64", "complex128", "bool", "", "", "", "bfloat16",
)  # fmt: skip
FUSED = re.compile(r"aten::_fused_\w+_(\.|$)")  # updates of weights
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
ONE_BY_ONE = "the step handles samples one by one"


class Sizes:
    """Sizes at `width` samples of a step that was recorded with `batch`.

    Only data of the batch grows, and what descends from it. Sizes that an operator takes as numbers follow
    the tensors whose sizes they were.
    """

    def __init__(self, batch: int, width: int, flat: Shape = ()) -> None:
        self.batch, self.width, self.flat = batch, width, flat
        self.seen: dict[Shape, Counter[Shape]] = {}  # of a shape in the step, what it is now

    def like(self, shape: Shape) -> Shape:
        """Whether a tensor from outside the step grows with the batch: like most tensors of its shape."""
        seen = self.seen.get(shape)
        return seen.most_common(1)[0][0] if seen else self.grown(shape)

    def grown(self, shape: Shape) -> Shape:
        """Of new data: the first dimension that has the size of the batch grows, or holds several."""
        if self.batch not in shape and shape and shape[0] in self.flat:
            return (shape[0] // self.batch * self.width, *shape[1:])
        at = shape.index(self.batch) if self.batch in shape else len(shape)
        return (*shape[:at], self.width, *shape[at + 1 :]) if at < len(shape) else shape

    def viewed(self, shape: Sequence[int], before: Shape, now: Shape) -> Shape:
        """Sizes for a view of a tensor that had one shape and has another now."""
        known = math.prod(size for size in shape if size != -1)
        found = [size if size != -1 else math.prod(before) // max(1, known) for size in shape]
        for sources, targets in _groups(before, found):
            had, has = math.prod(before[at] for at in sources), math.prod(now[at] for at in sources)
            if had == has or not had:
                continue
            likely = sorted(
                (at for at in targets if found[at] * has % had == 0),
                key=lambda at: (found[at] != self.batch, found[at] % self.batch != 0, found[at] == 1),
            )
            if likely:
                found[likely[0]] = found[likely[0]] * has // had
        return tuple(found)

    def expanded(self, shape: Sequence[int], before: Shape, now: Shape) -> Shape:
        """Sizes for an expansion."""
        lead = len(shape) - len(before)
        fixed = [at >= lead and (before[at - lead], now[at - lead]) != (1, 1) for at in range(len(shape))]
        kept = tuple(now[at - lead] if fixed[at] and size != -1 else size for at, size in enumerate(shape))
        free = [at for at, size in enumerate(shape) if size == self.batch and not fixed[at]]
        if not free or before != now:
            return kept
        return (*kept[: free[0]], self.width, *kept[free[0] + 1 :])

    def part(self, number: int, size: int, now: int) -> int:
        """A place along a dimension that had one size and has another now."""
        return number if size == now or not 0 < number <= size else round(number * now / size)


def _groups(before: Shape, after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Dimensions of two shapes with as many elements each, by runs whose products agree."""
    at = to = 0
    while at < len(before) or to < len(after):
        sources, targets = [at] if at < len(before) else [], [to] if to < len(after) else []
        left = before[at] if sources else 1
        right = after[to] if targets else 1
        at, to = at + len(sources), to + len(targets)
        while left != right and (at < len(before) or to < len(after)):
            if (left < right and at < len(before)) or to >= len(after):
                left *= before[at]
                sources.append(at)
                at += 1
            else:
                right *= after[to]
                targets.append(to)
                to += 1
        yield sources, targets


class NoAnswer(Exception):
    """Why there is no answer; one clause."""


class Failed(Exception):
    """A call can't be run again."""


class CallPlayer:
    """One program, at one batch size after the other.

    Attributes:
        flat: First dimensions of data that hold several of each sample.
        device: Where tensors are made: "cuda", or "meta" to learn shapes only; empty for a CPU job.
        failed: Calls that can't be run, by index, and why.
    """

    def __init__(
        self, torch: ModuleType, program: RecordedStep, batch: int, flat: Shape = (), device: str = ""
    ) -> None:
        self.torch, self.program, self.batch, self.flat = torch, program, batch, flat
        self.device = device
        self.failed: dict[int, str] = {}
        self._owned: dict[int, Any] = {}  # weights and state, of one shape at all sizes, by number
        self._operators: dict[str, tuple[Callable[..., Any], list[Any]]] = {}

    def operator(self, name: str) -> tuple[Callable[..., Any], list[Any]]:
        """The operator and its arguments' descriptions.

        Raises:
            Failed: this torch has none of that name.
        """
        found = self._operators.get(name)
        if found is None:
            space, _, rest = name.partition("::")
            base, _, overload = rest.partition(".")
            try:
                func = getattr(getattr(getattr(self.torch.ops, space), base), overload or "default")
            except (AttributeError, RuntimeError) as error:
                raise Failed("this operator is not known here") from error
            found = self._operators[name] = func, list(func._schema.arguments)
        return found

    def make(self, value: StepValue, shape: Shape) -> Any:
        """A tensor like one of the step, of another shape."""
        if value.number in self._owned:
            return self._owned[value.number]
        torch, dtype = self.torch, getattr(self.torch, value.dtype)
        stride = value.stride if len(value.stride) == len(shape) else (1,) * len(shape)  # not those of a vmap
        sizes = [1 if not stride[at] else size for at, size in enumerate(shape)]
        order = sorted(range(len(shape)), key=lambda at: (-stride[at], at))
        device = self.device if value.on_device or self.device == "meta" else "cpu"
        made = torch.empty_permuted(sizes, order, dtype=dtype, device=device or "cpu")
        if (dtype.is_floating_point or dtype.is_complex) and not made.is_cuda:
            made.copy_(torch.rand(sizes, device=made.device))
            if value.weight and len(shape) > 1:
                made.sub_(0.5).mul_(2 / math.sqrt(max(1, made.numel() // max(1, shape[0]))))
        elif dtype is torch.bool:
            made.copy_(torch.rand(sizes, device=made.device) < 0.9)
        elif not made.is_cuda or not dtype.is_floating_point:
            made.zero_()
        made = made.expand(shape)
        if value.owned and not self.device:
            self._owned[value.number] = made
        return made

    def held_bytes(self, batches: float) -> int:
        """What replays keep from one to the next: weights and state once, and data of so many batches."""
        given = [value for value in self.program.values if value.given]
        return int(sum(_bytes(value.shape, value) * (1 if value.owned else batches) for value in given))

    def peak_bytes(self, shapes: Mapping[int, Shape]) -> int:
        """The most that the step's own tensors take at once, of shapes by number, else as they were."""
        now = most = 0
        live: dict[int, int] = {}
        for call in self.program.calls:
            for value in call.outputs:
                if value is not None and value.base is None and not value.given and value.number not in live:
                    live[value.number] = _bytes(shapes.get(value.number, value.shape), value)
                    now += live[value.number]
            most = max(most, now)
            for value in call.done_with:
                now -= live.pop(value.number, 0)
        return most


def _bytes(shape: Shape, value: StepValue) -> int:
    return math.prod(shape) * value.item_bytes


class ReplayedStep:
    """The program at one size: what each call gets, learned by running all of them once.

    Attributes:
        shapes: Of all values at this size, by number.
    """

    def __init__(self, player: CallPlayer, width: int) -> None:
        self.player = player
        self.sizes = Sizes(player.batch, width, player.flat)
        self.shapes: dict[int, Shape] = {}
        self._given: dict[int, Any] = {}
        self._args: list[tuple[Any, ...]] = []
        self._selected: dict[tuple[int, int], set[int]] = {}
        table: dict[int, Any] = {}
        for index, call in enumerate(player.program.calls):
            outputs: Sequence[Any] = ()
            self._args.append(())
            if index not in player.failed:
                try:
                    outputs = self._first(index, call, table)
                except Exception as error:  # noqa: BLE001 - whatever an operator says of made-up arguments
                    text = str(error).strip().partition("\n")[0][:160]
                    player.failed[index] = f"{call.name}: {type(error).__name__}: {text}"
            self._learn_outputs(call, outputs)
            self._store(call, outputs, table)

    def _first(self, index: int, call: StepCall, table: dict[int, Any]) -> Sequence[Any]:
        func, schema = self.player.operator(call.name)
        fused = FUSED.match(call.name)
        for value in tensors_in(call.args):
            self._tensor(value, table)
            if fused and self.shapes[value.number] != value.shape:  # these don't look
                raise ValueError("what the optimizer updates grows with the batch")
        if call.name == "aten::select.int":
            self._selects(call)
        args = tuple(self._argument(call, at, schema[at]) for at in range(len(call.args)))
        self._args[index] = args
        plain, named = self.ready(index, schema, table)
        outputs = list(flat(func(*plain, **named)))
        if call.outputs and len(outputs) > len(call.outputs):
            raise Failed(ONE_BY_ONE)
        return outputs

    def _selects(self, call: StepCall) -> None:
        source, dim, place = call.args
        if source.shape[dim] != self.shapes[source.number][dim]:
            places = self._selected.setdefault((source.number, dim), set())
            places.add(place)
            if len(places) == source.shape[dim]:
                raise Failed(ONE_BY_ONE)

    def _tensor(self, value: StepValue, table: dict[int, Any]) -> Any:
        found = table.get(value.number, self._given.get(value.number))
        if found is None:
            shape = value.shape
            if not value.given:
                shape = self.sizes.like(shape)
            elif not value.owned:
                shape = self.sizes.grown(shape)
            found = self._given[value.number] = self.player.make(value, shape)
            self._note(value, shape)
        return found

    def _note(self, value: StepValue, shape: Shape) -> None:
        self.shapes[value.number] = shape
        self.sizes.seen.setdefault(value.shape, Counter())[shape] += 1

    def _argument(self, call: StepCall, at: int, described: Any) -> Any:
        """An argument at this size; tensors stay values."""
        given, name, torch = call.args[at], described.name, self.player.torch
        if given is None or isinstance(given, StepValue):
            return given
        kind = str(described.real_type)
        if "ScalarType" in kind:
            return getattr(torch, _SCALAR_TYPES[int(given)])
        if "Layout" in kind:
            return torch.strided
        if "Device" in kind and self.player.device:
            return self.player.device
        if "MemoryFormat" in kind:
            return getattr(torch, _FORMATS[int(given)])
        if "Generator" in kind:
            return None
        if isinstance(given, str) and "number" in kind.lower():
            return float(given)
        sizes, base = self.sizes, call.name.partition(".")[0]
        if sizes.width == sizes.batch:
            return given
        first = next(iter(tensors_in(call.args[:1])), None)
        before, now = (first.shape, self.shapes[first.number]) if first is not None else ((), ())
        if isinstance(given, list):
            if name not in SIZES or not all(type(one) is int for one in given):
                return given
            if base in VIEWS or (base.startswith("aten::new_") and math.prod(given) == math.prod(before)):
                return sizes.viewed(given, before, now)
            return sizes.expanded(given, before, now) if base == "aten::expand" else sizes.like(tuple(given))
        if type(given) is not int:
            return given
        if name in ("start", "end", "length") and base in ("aten::slice", "aten::narrow"):
            return sizes.part(given, before[call.args[1]], now[call.args[1]])
        if name in ("start", "end") and base == "aten::slice_backward":
            whole, dim = call.args[1], call.args[2]
            return sizes.part(given, whole[dim], sizes.like(tuple(whole))[dim])
        if COUNTS.get(base) == name and given == sizes.batch:
            return sizes.width
        out = call.outputs[0] if call.outputs else None
        if (base, name) == ("aten::arange", "end") and out is not None and out.shape == (sizes.batch,):
            start = call.args[0] if len(call.args) > 5 else 0
            return start + (given - start) * sizes.width // sizes.batch
        return given

    def ready(
        self, index: int, schema: list[Any], table: dict[int, Any], device: str = ""
    ) -> tuple[list[Any], dict[str, Any]]:
        """What a call gets, by place and by name; `device` in place of "meta"."""
        plain: list[Any] = []
        named: dict[str, Any] = {}
        for at, (one, described) in enumerate(zip(self._args[index], schema, strict=False)):
            real = self._real(one, table)
            if device and real == "meta":
                real = "cpu" if self.player.program.calls[index].args[at] == "cpu" else device
            if not described.kwarg_only:
                plain.append(real)
            elif real is not None:
                named[described.name] = real
        return plain, named

    def _real(self, thing: Any, table: dict[int, Any]) -> Any:
        if isinstance(thing, StepValue):
            return self._tensor(thing, table)
        if isinstance(thing, list):
            return [self._real(one, table) for one in thing]
        return thing

    def _learn_outputs(self, call: StepCall, outputs: Sequence[Any]) -> None:
        same = self.sizes.width == self.player.batch
        for at, value in enumerate(call.outputs):
            if value is None or value.number in self.shapes:
                continue
            shape = tuple(getattr(outputs[at], "shape", ())) if at < len(outputs) else None
            fits = shape is not None and (shape == value.shape if same else len(shape) == len(value.shape))
            self._note(value, shape if shape is not None and fits else self.sizes.like(value.shape))

    def _store(self, call: StepCall, outputs: Sequence[Any], table: dict[int, Any]) -> None:
        """Keep outputs; where a call failed or its output depends on data, a tensor of the right shape."""
        for at, value in enumerate(call.outputs):
            if value is None:
                continue
            made, shape = outputs[at] if at < len(outputs) else None, self.shapes[value.number]
            if made is not None and call.name.startswith("aten::empty") and not made.is_floating_point():
                made.zero_()  # the job filled it without an operator, with numbers of its own
            if getattr(made, "shape", None) != shape:  # a `Size` equals the tuple
                made = self._given.get(value.number)
            if getattr(made, "shape", None) != shape:
                made = self._given[value.number] = self.player.make(value, shape)
            table[value.number] = made
        for value in call.done_with:
            table.pop(value.number, None)

    def play(self) -> list[int]:
        """Run all calls once; nanoseconds of the thread's CPU time each took, 0 where it can't run."""
        player, clock = self.player, thread_time_ns
        spent = [0] * len(player.program.calls)
        table: dict[int, Any] = {}
        for index, call in enumerate(player.program.calls):
            outputs: Sequence[Any] = ()
            if index not in player.failed:
                func, schema = player.operator(call.name)
                plain, named = self.ready(index, schema, table)
                began = clock()
                out = func(*plain, **named)
                spent[index] = clock() - began
                del plain, named
                outputs = list(flat(out))
                del out
            self._store(call, outputs, table)
        return spent
