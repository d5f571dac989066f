"""How a tape runs at another batch: which values are fed in, which nodes are run, which integers
in their arguments mean the batch.

A value that depends on no module's result and needs no gradient is fed in (cut to size) where its
batch dimension is plain to see; else the call that made it is run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import cast

from ..live_torch.pytrees import leaves, map_tree
from ..live_torch.torch_types import Abstain, Tensor
from .batch_dim import Slicing, resized
from .step_recorder import Node
from .step_tape import Tape, Value

# fmt: off
_SIZED = frozenset((
    "zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "arange", "eye",
    "new_zeros", "new_ones", "new_full", "new_empty", "expand", "repeat", "tile", "broadcast_to",
    "split", "narrow",
))
# fmt: on
_VIEWS = frozenset(("view", "reshape", "unflatten"))
_INDEXED = frozenset(("__getitem__", "__setitem__"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What is taken for the batch where nothing proves it; tried in turn."""

    multiples: bool  # a dimension of k*B counts as well
    both: bool = False  # both dimensions of a B x B input are the batch


GUESSES = (Guess(multiples=False), Guess(multiples=True), Guess(multiples=False, both=True))


@dataclass(slots=True)
class ResizePlan:
    """What to run and what to feed, for a batch of `batch`."""

    batch: int
    order: list[int]  # numbers of nodes
    feeds: dict[int, tuple[int, ...]]  # value number -> its batch dimensions
    guess: Guess
    joint: list[tuple[list[int], Slicing]] = field(default_factory=list)  # embedding bags, cut together


def build(tape: Tape, slicings: dict[int, Slicing], guess: Guess, size: int | None = None) -> ResizePlan:
    """The plan of a tape.

    Args:
        slicings: By node number, for the root calls that were verified.
        guess: What to take for the batch elsewhere.
        size: Of what is cut in place of the batch; nothing proves it, so `slicings` are none.

    Raises:
        Abstain: two calls want one tensor sliced along different dimensions.
    """
    batch = size or min(slicing.size for slicing in slicings.values())
    plan = ResizePlan(batch, [], {}, guess)
    proven = _proven(tape, slicings, plan)
    wanted: set[int] = set()
    pending: list[int] = []
    for index, node in enumerate(tape.nodes):
        if node.kind == "backward":
            wanted.add(index)
            pending += node.inputs
    decided: set[int] = set()
    while pending:
        number = pending.pop()
        if number in decided:
            continue
        decided.add(number)
        value = tape.values[number]
        dims = _proven_or_guessed(value, number, proven, plan)
        if value.producer is None or _can_feed(tape.nodes[value.producer], value, number in proven, dims):
            plan.feeds[number] = dims
            continue
        wanted.add(value.producer)
        producer = tape.nodes[value.producer]
        pending += producer.inputs
    plan.order = sorted(wanted)
    return plan


def _proven(tape: Tape, slicings: dict[int, Slicing], plan: ResizePlan) -> dict[int, int | None]:
    proven: dict[int, int | None] = {}
    for index, slicing in slicings.items():
        node = tape.nodes[index]
        numbers = node.inputs
        bagged = {at for bag in slicing.bags for at in bag}
        if slicing.bags:
            plan.joint.append((numbers, slicing))
        for at, number in enumerate(numbers):
            dim = slicing.dims[at]
            if at in bagged or tape.values[number].rooted:
                continue
            if proven.setdefault(number, dim) != dim:
                raise Abstain("two modules take different dimensions of one tensor for the batch")
    return proven


def _can_feed(producer: Node, value: Value, proven: bool, dims: tuple[int, ...]) -> bool:
    if value.rooted or value.needs_grad or value.tensor is None:
        return False
    if proven or (len(dims) == 1 and value.shape.count(value.shape[dims[0]]) == 1):
        return True
    return not producer.inputs and getattr(producer.target, "__name__", "") not in _SIZED


def _proven_or_guessed(
    value: Value, number: int, proven: dict[int, int | None], plan: ResizePlan
) -> tuple[int, ...]:
    """Batch dimensions of a value that is fed in; none for parameters, buffers and constants."""
    if value.stays:
        return ()
    if number in proven:
        dim = proven[number]
        return () if dim is None else (dim,)
    exact = [dim for dim, size in enumerate(value.shape) if size == plan.batch]
    if exact:
        return tuple(exact if plan.guess.both else exact[:1])
    if plan.guess.multiples:
        multiple = [
            dim for dim, size in enumerate(value.shape) if size > plan.batch and size % plan.batch == 0
        ]
        return tuple(multiple[:1])
    return ()


def feed(torch: ModuleType, tape: Tape, plan: ResizePlan, wanted: int) -> dict[int, Tensor]:
    """Private copies of all inputs at a batch of `wanted`; parameters and buffers as they are."""
    env: dict[int, Tensor] = {}
    for numbers, slicing in plan.joint:
        tensors = [cast(Tensor, tape.values[number].tensor) for number in numbers]
        parts = resized(torch, tensors, slicing, slicing.size * wanted // plan.batch)
        for at in {at for bag in slicing.bags for at in bag}:
            env[numbers[at]] = parts[at]
    for number, dims in plan.feeds.items():
        value = tape.values[number]
        if number in env:
            continue
        if value.tensor is None:
            raise Abstain("a tensor of the recorded step is gone")
        env[number] = value.tensor if value.stays else _resized(torch, value, dims, plan.batch, wanted)
    return env


def _resized(torch: ModuleType, value: Value, dims: tuple[int, ...], batch: int, wanted: int) -> Tensor:
    tensor = cast(Tensor, value.tensor).detach()
    for dim in dims:
        size = tensor.shape[dim]
        tensor = resized(torch, [tensor], Slicing(size=size, dims=(dim,)), max(1, size * wanted // batch))[0]
    if not dims:
        tensor = tensor.clone()
    return tensor.requires_grad_(True) if value.needs_grad else tensor


def arguments(
    node: Node, env: dict[int, Tensor], plan: ResizePlan, wanted: int
) -> tuple[tuple[object, ...], dict[str, object]]:
    """A node's arguments at a batch of `wanted`: tensors filled in, sizes that mean the batch scaled."""
    batch = plan.batch
    args, kwargs = node.filled(env)
    if node.kind != "function" or wanted == batch:
        return args, kwargs
    name = getattr(node.target, "__name__", "")

    def scaled(part: object) -> object:
        if type(part) is int and part and part % batch == 0:
            return part * wanted // batch
        return part

    def exactly(part: object) -> object:
        return wanted if type(part) is int and part == batch else part

    if name == "split" and len(args) > 1 and type(args[1]) is int:
        return (args[0], _even_split(args, kwargs, len(node.outputs)), *args[2:]), kwargs
    if name in _SIZED or name in _INDEXED:
        scale = scaled if name in _INDEXED or plan.guess.multiples else exactly
        first = args[:1] if args and hasattr(args[0], "narrow") else ()
        rest = cast("tuple[object, ...]", map_tree(args[len(first) :], scale))
        return (*first, *rest), cast("dict[str, object]", map_tree(kwargs, scale))
    if name in _VIEWS and args:
        return _fitting(args, batch, wanted), kwargs
    return args, kwargs


def _even_split(args: tuple[object, ...], kwargs: dict[str, object], parts: int) -> int:
    """The chunk size that gives as many chunks as were recorded."""
    tensor, size = cast("tuple[Tensor, int]", args[:2])
    dim = cast(int, args[2] if len(args) > 2 else kwargs.get("dim", 0))
    length = tensor.shape[dim]
    return size if -(-length // size) == parts else max(1, -(-length // parts))


def _fitting(args: tuple[object, ...], batch: int, wanted: int) -> tuple[object, ...]:
    """View sizes that fit the tensor again: the first size that is a multiple of B is scaled."""
    tensor = cast(Tensor, args[0])
    sizes = [size for size in leaves(args[1:]) if type(size) is int]
    if len(sizes) != len(leaves(args[1:])):
        return args
    for part in args[1:]:
        if type(part).__name__ == "Size":
            sizes = list(cast("tuple[int, ...]", part))
    free = sizes.index(-1) if -1 in sizes else None
    known = 1
    for size in sizes:
        known *= size if size != -1 else 1
    if free is None and known == tensor.numel():
        return args
    candidates = [at for at, size in enumerate(sizes) if size == batch]
    if free is not None:  # the free size takes up the batch, unless B stands before it
        candidates = [at for at in candidates[:1] if at < free]
    else:
        candidates += [at for at, size in enumerate(sizes) if size > batch and size % batch == 0]
    for at in candidates:
        scaled = [size * wanted // batch if place == at else size for place, size in enumerate(sizes)]
        if free is not None or known // sizes[at] * scaled[at] == tensor.numel():
            return (tensor, *scaled)
    return args
