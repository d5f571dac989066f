"""Runs the calls of a recorded step on tensors of our own, at any batch size, and times each.

In: a program. Out: the thread's CPU time of each call. Every tensor is made up, and indices are drawn within
what they index, so that no operator reaches outside of its data. Outputs feed inputs as in the step: caches,
allocations and lifetimes are as they were there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import thread_time_ns
from types import ModuleType
from typing import Any

from .resized import COUNTS, SIZES, VIEWS, Shape, Sizes
from .step_record import RecordedStep, StepCall, StepValue, tensors_in

MOST_TURNS = 12  # of guesses
# Where indices stand, what they index, and along which dimension; None: the second argument says it.
_INDEXING: dict[str, tuple[int, int, int | None]] = {
    "embedding": (1, 0, 0),
    "_embedding_bag": (1, 0, 0),
    "_embedding_bag_forward_only": (1, 0, 0),
    "nll_loss_forward": (1, 0, -1),
    "nll_loss2d_forward": (1, 0, 1),
    "nll_loss_backward": (2, 1, -1),
    "nll_loss2d_backward": (2, 1, 1),
    **dict.fromkeys(
        (
            "index_select", "gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce",
            "index_add", "index_add_", "index_copy", "index_copy_", "index_fill_",
        ),
        (2, 0, None),
    ),
}  # fmt: skip
_BY_MASK_OR_INDEX = frozenset(("index", "index_put", "index_put_", "_index_put_impl_"))
_SCALAR_TYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "complex32", "complex64", "complex128", "bool", "", "", "", "bfloat16",
)  # fmt: skip
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


ONE_BY_ONE = "the step handles samples one by one"


class Failed(Exception):
    """A call can't be run again."""


class _Turn(Exception):
    """A guess is turned round: from the beginning."""


class CallPlayer:
    """One program, at one batch size after the other.

    Args:
        failed: Calls that can't be run, by index, and why; more are added.
        begins: Told the index of each call that is about to run for the first time at a size.
    """

    def __init__(
        self,
        torch: ModuleType,
        program: RecordedStep,
        batch: int,
        failed: dict[int, str],
        begins: Callable[[int], object] = lambda index: None,
    ) -> None:
        self.torch, self.program, self.batch = torch, program, batch
        self.failed, self.begins = failed, begins
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
        torch = self.torch
        dtype = getattr(torch, value.dtype)
        stretched = [at for at in range(len(shape)) if value.stride[at] == 0 and value.shape[at] > 1]
        order = sorted(
            (at for at in range(len(shape)) if at not in stretched), key=lambda at: (-value.stride[at], at)
        )
        base = [shape[at] for at in order]
        if dtype.is_floating_point or dtype.is_complex:
            made = torch.rand(base, dtype=torch.float32 if dtype.itemsize < 4 else dtype).to(dtype)
            if value.weight and len(shape) > 1:
                made = made.sub_(0.5).mul_(2 / math.sqrt(max(1, made.numel() // max(1, shape[0]))))
        elif dtype is torch.bool:
            made = torch.rand(base) < 0.9
        else:
            made = torch.zeros(base, dtype=dtype)
        placed = [*order, *stretched]
        made = made.reshape([*base, *(1 for _ in stretched)]).permute(
            [placed.index(at) for at in range(len(shape))]
        )
        return (made.expand(shape) if stretched else made).to(value.device)


class ReplayedStep:
    """The program at one size: what each call gets, learned by running all of them once.

    Attributes:
        shapes: Of all values at this size, by number.
    """

    def __init__(self, player: CallPlayer, width: int) -> None:
        self.player, self.width = player, width
        self._turned: dict[object, int] = {}  # by guess: which of its answers
        for _ in range(MOST_TURNS):
            try:
                self._learn()
                return
            except _Turn:
                continue
        self._turned.clear()
        self._learn(turning=False)

    def _learn(self, *, turning: bool = True) -> None:
        player = self.player
        self.sizes = Sizes(player.batch, self.width)
        self.shapes: dict[int, Shape] = {}
        self._given: dict[int, Any] = {}
        self._args: list[tuple[Any, ...]] = []
        self._guesses: dict[object, int] = {}  # how many answers each has
        self._behind: dict[int, frozenset[object]] = {}  # by value: the guesses that it follows from
        self._selected: dict[tuple[int, int], set[int]] = {}
        failed: dict[int, str] = {}
        table: dict[int, Any] = {}
        for index, call in enumerate(player.program.calls):
            outputs: Sequence[Any] = ()
            self._args.append(())
            self._now: set[object] = set()
            if index not in player.failed:
                player.begins(index)
                try:
                    outputs = self._first(index, call, table)
                except Exception as error:  # noqa: BLE001 - whatever an operator says of made-up arguments
                    if turning and self.width != player.batch and not isinstance(error, Failed):
                        self._turn(call)
                    text = str(error).strip().partition("\n")[0][:160]
                    failed[index] = f"{call.name}: {type(error).__name__}: {text}"
            self._learn_outputs(call, outputs)
            self._store(call, outputs, table)
        player.failed.update(failed)

    def _turn(self, call: StepCall) -> None:
        """Turn round the last guess that led to a failure, where one is left."""
        behind = {
            *self._now,
            *(one for value in tensors_in(call.args) for one in self._behind.get(value.number, ())),
        }
        for guess in reversed(list(self._guesses)):
            if guess in behind and self._turned.get(guess, 0) + 1 < self._guesses[guess]:
                self._turned[guess] = self._turned.get(guess, 0) + 1
                raise _Turn

    def _guess(self, name: object, answers: Sequence[Any]) -> Any:
        if len(answers) > 1 and self.width != self.player.batch:
            self._guesses[name] = len(answers)
            self._now.add(name)
            return answers[min(self._turned.get(name, 0), len(answers) - 1)]
        return answers[0]

    def _first(self, index: int, call: StepCall, table: dict[int, Any]) -> Sequence[Any]:
        func, schema = self.player.operator(call.name)
        if len(call.args) > len(schema):
            raise Failed("it has more arguments than its schema")
        for value in tensors_in(call.args):
            self._tensor(value, table)
            if call.optimizer and self.shapes[value.number] != value.shape:  # fused ones don't look
                raise ValueError("what the optimizer updates grows with the batch")
        args = [self._argument(index, call, at, schema[at]) for at in range(len(call.args))]
        self._draw(call, args, table)
        self._args[index] = tuple(args)
        plain, named = self._ready(schema, args, table)
        outputs = _flat(func(*plain, **named))
        if call.outputs and len(outputs) > len(call.outputs):
            raise Failed(ONE_BY_ONE)
        if call.name == "aten::select.int":
            self._selects(call)
        return outputs

    def _selects(self, call: StepCall) -> None:
        source, dim, place = call.args
        if source.shape[dim] != self.shapes[source.number][dim]:
            places = self._selected.setdefault((source.number, dim), set())
            places.add(place)
            if len(places) == source.shape[dim] > 1:
                raise Failed(ONE_BY_ONE)

    def _tensor(self, value: StepValue, table: dict[int, Any]) -> Any:
        found = table.get(value.number)
        if found is None:
            found = self._given.get(value.number)
        if found is None:
            shape = value.shape
            if not value.given:
                shape = self.sizes.like(shape)
            elif not value.owned:
                shape = self._guess(("given", value.number), self.sizes.grown(shape))
                self._behind[value.number] = frozenset((("given", value.number),))
            found = self._given[value.number] = self.player.make(value, shape)
            self._note(value, shape)
        return found

    def _note(self, value: StepValue, shape: Shape) -> None:
        self.shapes[value.number] = shape
        self.sizes.saw(value.shape, shape)

    def _argument(self, index: int, call: StepCall, at: int, described: Any) -> Any:
        """An argument at this size; tensors stay values."""
        given, name, torch = call.args[at], described.name, self.player.torch
        if given is None or isinstance(given, StepValue):
            return given
        kind = str(described.real_type)
        if "ScalarType" in kind:
            return getattr(torch, _SCALAR_TYPES[int(given)])
        if "Layout" in kind:
            return torch.strided
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
            answers = sizes.expanded(given, before, now) if base == "aten::expand" else sizes.made(given)
            return self._guess((index, at), answers)
        if type(given) is not int:
            return given
        if name in ("start", "end", "length") and base in ("aten::slice", "aten::narrow"):
            return sizes.part(given, before[call.args[1]], now[call.args[1]])
        if name in ("start", "end") and base == "aten::slice_backward":
            whole, dim = call.args[1], call.args[2]
            return sizes.part(given, whole[dim], self._guess((index, 1), sizes.made(whole))[dim])
        if COUNTS.get(base) == name and given == sizes.batch:
            return self._guess((index, at), [sizes.width, given])
        out = call.outputs[0] if call.outputs else None
        if (base, name) == ("aten::arange", "end") and out is not None and out.shape == (sizes.batch,):
            start = call.args[0] if len(call.args) > 5 else 0
            return self._guess((index, at), [start + (given - start) * sizes.width // sizes.batch, given])
        return given

    def _draw(self, call: StepCall, args: list[Any], table: dict[int, Any]) -> None:
        """Put indices within what they index in place of those of the step."""
        base = call.name.partition("::")[2].partition(".")[0]
        if base in _INDEXING:
            at, source, dim = _INDEXING[base]
            shape = self.shapes[call.args[source].number]
            args[at] = self._drawn(
                args[at], shape[call.args[1] if dim is None else dim] if shape else 1, table
            )
            if base.startswith("_embedding_bag"):
                offsets = self._tensor(call.args[2], table)
                each = args[1].shape[0] / max(1, offsets.shape[0])
                ramp = self.player.torch.arange(offsets.shape[0], dtype=self.player.torch.float64)
                args[2] = (ramp * each).to(offsets.dtype)
        elif base == "embedding_dense_backward":
            args[1] = self._drawn(args[1], call.args[2], table)
        elif base in _BY_MASK_OR_INDEX:
            shape, dim, drawn = self.shapes[call.args[0].number], 0, []
            for one in call.args[1]:
                mask = one is not None and one.dtype in ("bool", "uint8")
                drawn.append(one if one is None or mask else self._drawn(one, shape[dim], table))
                dim += len(one.shape) if mask else 1
            args[1] = drawn

    def _drawn(self, value: StepValue, below: int, table: dict[int, Any]) -> Any:
        old = self._tensor(value, table)
        return self.player.torch.randint(0, max(1, below), old.shape, dtype=old.dtype, device=old.device)

    def _ready(
        self, schema: list[Any], args: Sequence[Any], table: dict[int, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        plain: list[Any] = []
        named: dict[str, Any] = {}
        for one, described in zip(args, schema, strict=False):
            real = self._real(one, table)
            if not described.kwarg_only:
                plain.append(real)
            elif real is not None:
                named[described.name] = real
        return plain, named

    def _real(self, thing: Any, table: dict[int, Any]) -> Any:
        if isinstance(thing, StepValue):
            found = table.get(thing.number)
            return self._given[thing.number] if found is None else found
        if isinstance(thing, list):
            return [self._real(one, table) for one in thing]
        return thing

    def _learn_outputs(self, call: StepCall, outputs: Sequence[Any]) -> None:
        behind = self._now.union(*(self._behind.get(one.number, ()) for one in tensors_in(call.args)))
        same = self.width == self.player.batch
        for at, value in enumerate(call.outputs):
            if value is None or value.number in self.shapes:
                continue
            shape = tuple(getattr(outputs[at], "shape", ())) if at < len(outputs) else None
            fits = shape is not None and (shape == value.shape if same else len(shape) == len(value.shape))
            self._note(value, shape if shape is not None and fits else self.sizes.like(value.shape))
            self._behind[value.number] = frozenset(behind)

    def _store(self, call: StepCall, outputs: Sequence[Any], table: dict[int, Any]) -> None:
        """Keep outputs; where a call failed or its output depends on data, a tensor of the right shape."""
        for at, value in enumerate(call.outputs):
            if value is None:
                continue
            made, shape = outputs[at] if at < len(outputs) else None, self.shapes[value.number]
            if made is None or tuple(made.shape) != shape:
                made = self._given.get(value.number)
                if made is None or tuple(made.shape) != shape:
                    made = self._given[value.number] = self.player.make(value, shape)
            table[value.number] = made
        for value in call.done_with:
            table.pop(value.number, None)

    def peak_bytes(self) -> int:
        """The most that the step's own tensors take at once, weights and state aside."""
        now = most = 0
        live: dict[int, int] = {}
        for call in self.player.program.calls:
            for value in call.outputs:
                if value is not None and value.base is None and not value.given and value.number not in live:
                    size = getattr(self.player.torch, value.dtype).itemsize
                    live[value.number] = math.prod(self.shapes[value.number]) * size
                    now += live[value.number]
            most = max(most, now)
            for value in call.done_with:
                now -= live.pop(value.number, 0)
        return most

    def play(self, spent: list[list[int]]) -> None:
        """Run all calls once; append what each took, in nanoseconds of the thread's CPU time."""
        player, clock = self.player, thread_time_ns
        table: dict[int, Any] = {}
        for index, call in enumerate(player.program.calls):
            outputs: Sequence[Any] = ()
            if index not in player.failed:
                func, schema = player.operator(call.name)
                plain, named = self._ready(schema, self._args[index], table)
                began = clock()
                out = func(*plain, **named)
                spent[index].append(clock() - began)
                del plain, named
                outputs = _flat(out)
                del out
            self._store(call, outputs, table)


def _flat(out: Any) -> list[Any]:
    if isinstance(out, (list, tuple)):
        return [each for one in out for each in _flat(one)]
    return [out]
