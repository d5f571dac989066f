"""What one operator call has to do: floating-point operations, bytes to move, the shapes it does it on.

In: an operator as it was dispatched, with its arguments and result. Out: a `Work`. Bytes are what a
kernel must at least read and write once, whatever the caches hold; views and fresh memory move none.
Reads shapes only, never data, and dispatches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..live_torch import op_flops as flops

SHOWN_SHAPES = 3
# Their own result annotations do not say that they move nothing.
FREE = frozenset({"_unsafe_view", "_reshape_alias", "lift_fresh", "set_", "resize_", "empty", "empty_like"})
FREE_MARKS = ("new_empty", "empty_strided", "empty_permuted", "_efficientzerotensor", "sym_")
WRITE_ONLY = frozenset(
    {"copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_"}
)
GATHERS = frozenset({"embedding", "index", "index_select", "gather", "take", "take_along_dim"})
INDEX_BYTES = 8
SCATTERS = frozenset({"index_put_", "_index_put_impl_", "index_add_", "scatter_add_", "scatter_"})


class Work(NamedTuple):
    """One call's work; a multiply and an add count as two operations."""

    flops: int
    bytes: int
    shapes: str  # of the first arguments: "512x768 768x1024"
    dtype: str  # of the first argument: "float32"


NOTHING = Work(0, 0, "", "")


class OpWorkReader:
    """Reads calls; remembers what it has learnt about each operator."""

    def __init__(self) -> None:
        self._rules: dict[object, _Rule] = {}

    def of(self, func: object, args: Sequence[object], kwargs: dict[str, object], out: object) -> Work:
        """The work of one call."""
        rule = self._rules.get(func)
        if rule is None:
            rule = self._rules[func] = _rule(func)
        if rule.free:
            return NOTHING
        given = [_tensors(one) for one in args]
        named = [_tensors(one) for one in kwargs.values()] if kwargs else []
        results = _tensors(out)
        moved = _bytes(rule, given, named, results)
        shapes = [one for tensors in given for one in tensors[:1]][:SHOWN_SHAPES]
        shown = " ".join("x".join(map(str, one.shape)) or "1" for one in shapes)  # type: ignore[attr-defined]
        dtype = str(shapes[0].dtype).rpartition(".")[2] if shapes else ""  # type: ignore[attr-defined]
        return Work(_flops(rule.name, func, args, out), moved, shown, dtype)


class _Rule(NamedTuple):
    name: str
    free: bool
    written: tuple[int, ...]  # positions of arguments that are written


def _rule(func: object) -> _Rule:
    schema = getattr(func, "_schema", None)
    name = str(getattr(schema, "name", func)).rpartition("::")[2].partition(".")[0]
    written = []
    for position, argument in enumerate(getattr(schema, "arguments", ())):
        alias = argument.alias_info
        if alias is not None and alias.is_write:
            written.append(position)
    if name.startswith("_fused_"):  # gradients are written only where a scale is given: not by default
        written = [position for position in written if position != 1]
    returned = [one.alias_info for one in getattr(schema, "returns", ())]
    view = not written and any(alias is not None for alias in returned)
    free = view or name in FREE or any(mark in name for mark in FREE_MARKS)
    return _Rule(name, free, tuple(written))


def _tensors(thing: object) -> list[object]:
    """The tensors of one argument: itself, or those of a list."""
    if hasattr(thing, "element_size"):
        return [thing]
    if isinstance(thing, (list, tuple)):
        return [one for one in thing if hasattr(one, "element_size")]
    return []


def _is_sparse(tensor: object) -> bool:
    return bool(getattr(tensor, "is_sparse", False))


def _sparse_size(tensor: object) -> int:
    """Bytes of the values that a sparse tensor lists, and of their indices."""
    listed, dims = int(tensor._nnz()), int(tensor.sparse_dim())  # type: ignore[attr-defined]
    value: int = tensor.element_size()  # type: ignore[attr-defined]
    for length in tensor.shape[dims:]:  # type: ignore[attr-defined]
        value *= int(length)
    return listed * (value + INDEX_BYTES * dims)


def _size(tensor: object) -> int:
    """Bytes of memory behind a tensor; an expanded one holds less than it shows."""
    if _is_sparse(tensor):
        return _sparse_size(tensor)
    size: int = tensor.numel() * tensor.element_size()  # type: ignore[attr-defined]
    if size and 0 in tensor.stride():  # type: ignore[attr-defined]
        for length, stride in zip(tensor.shape, tensor.stride(), strict=True):  # type: ignore[attr-defined]
            if stride == 0 and length:
                size //= length
    return size


def _sum(tensors: Sequence[object]) -> int:
    return sum(map(_size, tensors))


def _bytes(rule: _Rule, given: list[list[object]], named: list[list[object]], out: list[object]) -> int:
    name = rule.name
    sparse = [one for tensors in (*given, *named, out) for one in tensors if _is_sparse(one)]
    if sparse:  # of what is dense beside it, only the rows that it lists are touched
        most = max(map(_size, sparse))
        written = [one for at in rule.written if at < len(given) for one in given[at]]
        touched = [one for tensors in (*given, *named) for one in tensors]
        return sum(min(_size(one), most) for one in [*touched, *(written or out)])
    if name in GATHERS:  # as many elements are read as come out, not the whole table
        return 2 * _sum(out) + sum(_sum(one) for one in given[1:])
    if name in SCATTERS:
        values = max((_sum(one) for one in given[1:]), default=0)
        return 3 * values
    if name.startswith("_embedding_bag") and "backward" not in name:
        table, indices = given[0][0], given[1][0]
        row = _size(table) // max(1, int(table.shape[0]))  # type: ignore[attr-defined]
        looked_up: int = indices.numel()  # type: ignore[attr-defined]
        return looked_up * row + _sum(given[1]) + _sum(out[:1])
    if name == "embedding_dense_backward":  # the whole table is cleared, its rows are added to
        return _sum(out) + 3 * _sum(given[0])
    read = sum(_sum(one) for one in given) + sum(_sum(one) for one in named)
    changed = sum(_sum(given[at]) for at in rule.written if at < len(given))
    if changed:
        return read if name in WRITE_ONLY else read + changed
    if rule.written:  # `out=` and its like: written, not read
        return read
    return read + _sum(out)


def _flops(name: str, func: object, args: Sequence[object], out: object) -> int:
    if name in ("mv", "dot", "vdot"):
        return 2 * int(args[0].numel())  # type: ignore[attr-defined]
    if name == "addmv":
        return 2 * int(args[1].numel())  # type: ignore[attr-defined]
    if name == "_addmm_activation":
        return 2 * int(args[1].numel()) * int(args[2].shape[-1])  # type: ignore[attr-defined]
    if name == "mkldnn_rnn_layer":  # (input, weights of the input, weights of the state, ...)
        return _recurrent(args)
    if name == "mkldnn_rnn_layer_backward":
        return 2 * _recurrent(args)
    return flops.of(func, args, out)  # type: ignore[arg-type]


def _recurrent(args: Sequence[object]) -> int:
    source = args[0]
    rows = int(source.numel()) // max(1, int(source.shape[-1]))  # type: ignore[attr-defined]
    return 2 * rows * (int(args[1].numel()) + int(args[2].numel()))  # type: ignore[attr-defined]
