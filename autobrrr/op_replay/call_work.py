"""What the operators of a recorded step have to do: operations, bytes to move, the shapes they do it on.

In: its calls, and what each one's kernel took. Out: the table `work` of `records.TracedSteps`. Bytes are what
a kernel must at least read and write once, whatever the caches hold; views and fresh memory move none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any

from ..agent.audit import op_flops
from .step_record import StepCall, StepValue, tensors_in

TOP = 96
SHOWN_SHAPES = 3
# Their own result annotations do not say that they move nothing.
FREE = frozenset({"_unsafe_view", "_reshape_alias", "lift_fresh", "set_", "resize_", "empty", "empty_like"})
FREE_MARKS = ("new_empty", "empty_strided", "empty_permuted", "_efficientzerotensor", "sym_")
WRITE_ONLY = ("copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_")
GATHERS = frozenset({"embedding", "index", "index_select", "gather", "take", "take_along_dim"})
SCATTERS = frozenset({"index_put_", "_index_put_impl_", "index_add_", "scatter_add_", "scatter_"})
NUMBER, COUNTED = "aten::_local_scalar_dense", "aten::add_."  # what reads one for Python, or keeps count
MANY = 16  # elements that a sum has at least
DRAWS = re.compile(r"::\w*(rand|normal|uniform|bernoulli|dropout|multinomial|exponential)")
SUMS = re.compile(r"::(sum|mean|norm|linalg_vector_norm|dot|bincount|histc|\w*_loss\w*)\b")
Operator = Callable[[str], tuple[Any, Sequence[Any]]]  # by name: it, and its arguments' descriptions


def work_table(
    calls: Sequence[StepCall],
    times: Sequence[tuple[float, str]],
    operator: Operator,
    alone_ns: Mapping[int, int],
    parts: Mapping[str, Collection[int]],
) -> list[dict[str, Any]]:
    """Calls by operator, phase and shape, the dearest first.

    Args:
        times: Of each call's kernel in the job, and its phase.
        alone_ns: What calls took in a replay, by index.
        parts: Of `unread_calls` and the like, by the field that sums up their kernels.
    """
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for index, (call, (kernel_ns, phase)) in enumerate(zip(calls, times, strict=True)):
        shown = [next(tensors_in([one]), None) for one in call.args]
        first = [one for at, one in enumerate(shown) if one is not None and (one.shape or not at)]
        sides = [_held(one) if len(one.stride) == len(one.shape) else one.shape for one in first]
        shapes = " ".join("x".join(map(str, one)) or "1" for one in sides[:SHOWN_SHAPES])
        try:
            done: tuple[int, int] | None = _work(*operator(call.name), call)
        except Exception:  # noqa: BLE001 - an operator of the job's own, or another form of one of torch's
            done = None
        name = call.name.replace("::", ".") + ("" if "." in call.name else ".default")
        key = {"op": name, "phase": phase, "shapes": shapes, "dtype": first[0].dtype if first else ""}
        empty = dict.fromkeys(("count", "kernel_ns", "flops", "bytes", *parts), 0) | {"alone_ns": None}
        row = rows.setdefault(tuple(key.values()), {**key, **empty})
        row["count"] += 1
        row["kernel_ns"] += kernel_ns
        for part, of in parts.items():
            row[part] += kernel_ns * (index in of)
        for at, kind in enumerate(("flops", "bytes")):
            row[kind] = None if done is None or row[kind] is None else row[kind] + done[at]
        if done is not None and done[0] and index in alone_ns:
            row["alone_ns"] = min(row["alone_ns"] or alone_ns[index], alone_ns[index])
    return sorted(rows.values(), key=lambda row: -row["kernel_ns"])[:TOP]


def unread_calls(calls: Sequence[StepCall], phases: Sequence[str]) -> set[int]:
    """Those of which only numbers come that sum up many, read or added to a count: a metric's, no action's.

    Empty where weights change outside of optimizers: a line search reads numbers to train.
    """
    reads, makes = ([_memory(getattr(one, side)) for one in calls] for side in ("args", "outputs"))
    summed, needed, later, found = set[int](), set[int](), set[int](), set[int]()
    readers = Counter(one for read in reads for one in read)
    written = [{one for one in tensors_in(call.args[:1]) if one.owned and _writes(call)} for call in calls]
    updates = {each for each, to in zip(phases, written, strict=True) if any(one.weight for one in to)}
    for call, read, made in zip(calls, reads, makes, strict=True):
        most = max((prod(one.shape) for one in tensors_in(call.args)), default=0)
        if (most >= MANY and SUMS.search(call.name)) or (most == 1 and read & summed):
            summed |= made
    for at in reversed(range(len(calls) if updates == {"optimizer"} else 0)):
        call, read, made = calls[at], reads[at], makes[at]
        counts = call.name.startswith(COUNTED) and all(readers[each] == 1 for each in made)
        number = counts or call.name.startswith(NUMBER)
        stays = read - made - summed if number else made.isdisjoint(later)
        changed = made if _writes(call) else made - read  # a view changes nothing
        if written[at] or stays or changed & needed:
            needed |= read
        else:
            found.add(at)
        later |= read
    return found


def fixed_calls(calls: Sequence[StepCall]) -> set[int]:
    """Those in which no weight and no random number has a part: of the same data comes the same each time."""
    moves, found = set[int](), set[int]()
    for at, call in enumerate(calls):
        if (
            _memory(call.args) & moves
            or DRAWS.search(call.name)
            or any((one.base or one).weight for one in tensors_in(call.args))
        ):
            moves |= _memory(call.outputs)
        else:
            found.add(at)
    return found


def repeated_calls(calls: Sequence[StepCall], phases: Sequence[str]) -> set[int]:
    """Those that compute ahead of backward what an earlier call has: one operator, of the same contents.

    Only of weights and of what backward reads as well: other memory may have been freed, and hold other data,
    as that of a number does.
    """
    back = [call for call, phase in zip(calls, phases, strict=True) if phase == "backward"]
    stays = set[int]().union(*(_memory(call.args) for call in back))
    names, held, made, found = dict[int, Any](), dict[int, Any](), dict[Any, int](), set[int]()

    def content(thing: Any) -> Any:
        if isinstance(thing, (list, tuple)):
            return tuple(map(content, thing))
        if not isinstance(thing, StepValue):
            return thing
        memory = (thing.base or thing).number
        return names.get(thing.number, thing.number), held.get(memory, memory)

    for at, (call, phase) in enumerate(zip(calls, phases, strict=True)):
        data = [one for one in tensors_in(call.args) if one.given and not one.owned]
        freed = any(not one.shape or one.number not in stays for one in data)
        drawn = not call.name.startswith("aten::") or DRAWS.search(call.name)
        if phase == "backward":
            made.clear()
        first = at if freed or drawn else made.setdefault((call.name, content(call.args)), at)
        if first != at and phase in ("forward", "other"):
            found.add(at)
        read, results = _memory(call.args), _memory(call.outputs)
        changes = _memory(call.args if "_fused_" in call.name else call.args[:1]) if _writes(call) else set()
        held |= dict.fromkeys(changes | (results if _writes(call) else results - read), ~first)
        for place, value in enumerate(call.outputs):
            if value is not None:
                names.setdefault(value.number, (first, place))
    return found


def _memory(things: Sequence[Any]) -> set[int]:
    return {(one.base or one).number for one in tensors_in(things)}


def _writes(call: StepCall) -> bool:
    name, _, overload = call.name.partition(".")
    return name.endswith("_") or overload.endswith("out")


def _work(func: Any, described: Sequence[Any], call: StepCall) -> tuple[int, int]:
    """Operations and bytes of one call; a multiply and an add count as two operations."""
    name = call.name.rpartition("::")[2].partition(".")[0]
    writes = [at for at, one in enumerate(described) if getattr(one.alias_info, "is_write", False)]
    if name.startswith("_fused_"):  # gradients are written only where a scale is given: not by default
        writes = [at for at in writes if at != 1]
    view = not writes and any(one.alias_info is not None for one in func._schema.returns)
    if view or name in FREE or any(mark in name for mark in FREE_MARKS):
        return 0, 0
    out = [one for one in call.outputs if one is not None]
    flops = _flops(name, func, call.args, out[0] if out else None)
    return flops, _bytes(name, described, writes, call.args, out)


def _bytes(
    name: str,
    described: Sequence[Any],
    writes: Sequence[int],
    args: Sequence[StepValue],
    out: Sequence[StepValue],
) -> int:
    given = [sum(map(_size, tensors_in([one]))) for one in args]
    made = sum(map(_size, out))
    if name in GATHERS:  # as many elements are read as come out, not the whole table
        return 2 * made + sum(given[1:])
    if name in SCATTERS:
        return 3 * max(given[1:], default=0)
    if name.startswith("_embedding_bag") and "backward" not in name:
        row = _size(args[0]) // max(1, args[0].shape[0])
        return prod(args[1].shape) * row + given[1] + _size(out[0])
    if name == "embedding_dense_backward":  # the whole table is cleared, its rows are added to
        return made + 3 * given[0]
    read = sum(given)
    changed = [at for at in writes if at < len(given) and not described[at].kwarg_only]
    if changed:
        return read if name in WRITE_ONLY else read + sum(given[at] for at in changed)
    return read if writes else read + made  # `out=` and its like: written, not read


def _held(value: StepValue) -> list[int]:
    """A tensor's shape in memory: an expanded side is 1. ValueError: it is sparse, or of a vmap."""
    return [size if step or not size else 1 for size, step in zip(value.shape, value.stride, strict=True)]


def _size(value: StepValue) -> int:
    return prod(_held(value)) * value.item_bytes


def _flops(name: str, func: Any, args: Sequence[StepValue], out: StepValue | None) -> int:
    if name in ("mv", "dot", "vdot"):
        return 2 * prod(args[0].shape)
    if name == "addmv":
        return 2 * prod(args[1].shape)
    if name == "_addmm_activation":
        return 2 * prod(args[1].shape) * int(args[2].shape[-1])
    if name.startswith("mkldnn_rnn_layer"):  # (input, weights of the input, weights of the state, ...)
        rows = prod(args[0].shape[:-1])
        once = 2 * rows * (prod(args[1].shape) + prod(args[2].shape))
        return 2 * once if "backward" in name else once
    return op_flops.of(func, args, out)
