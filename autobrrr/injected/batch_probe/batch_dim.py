"""Which dimension is the batch: proposed from shapes, then verified on the module itself.

A proposal holds only if each half of the inputs gives the matching half of the result, in
evaluation mode. A time dimension fails on the second half, a loss over the whole batch on both.
Pure functions over shapes here, and the comparison; who calls the module is `verify.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from ..live_torch.torch_types import Tensor

_MAX_PROPOSALS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class InputShape:
    """One tensor input as the proposals see it."""

    sizes: tuple[int, ...]
    kind: str  # "float", "int" or "bool"
    stays: bool = False  # a parameter or buffer that is passed as an argument
    indices: int | None = None  # of offsets (1-D integers from 0, not decreasing): what input they divide


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicing:
    """How a call's inputs divide into samples: for each input its batch dimension or None."""

    size: int
    dims: tuple[int | None, ...]
    bags: tuple[tuple[int, int], ...] = ()  # (position of offsets, position of their indices)


def proposals(shapes: Sequence[InputShape]) -> Iterator[Slicing]:
    """Slicings worth trying, the likeliest first; at most 16.

    The likeliest size stands first in most inputs. Inputs of one kind and shape are treated
    alike; square 2-D inputs may be masks, so each is tried in and out.
    """
    yielded = 0
    bags = tuple((at, shape.indices) for at, shape in enumerate(shapes) if shape.indices is not None)
    divided = {indices for _, indices in bags}
    for size in _sizes(shapes, divided):
        groups: dict[tuple[object, ...], list[int | None]] = {}
        for at, shape in enumerate(shapes):
            if shape.stays or at in divided:
                continue
            choices: list[int | None] = [dim for dim, length in enumerate(shape.sizes) if length == size]
            if len(shape.sizes) == 2 and shape.sizes[0] == shape.sizes[1] == size:
                choices = [None, *choices] if shape.kind != "int" else [*choices, None]
            groups[_group(at, shape)] = choices or [None]
        picks = sorted(itertools.islice(itertools.product(*groups.values()), 256), key=_uniformity)
        for pick in picks:
            chosen = dict(zip(groups, pick, strict=True))
            dims = tuple(
                None if shape.stays or at in divided else chosen[_group(at, shape)]
                for at, shape in enumerate(shapes)
            )
            if all(dim is None for dim in dims):
                continue
            yield Slicing(size=size, dims=dims, bags=bags)
            yielded += 1
            if yielded >= _MAX_PROPOSALS:
                return


def _group(at: int, shape: InputShape) -> tuple[object, ...]:
    """Inputs of one group are treated alike; a square one that may be a mask stands alone."""
    may_be_mask = shape.kind != "int" and len(shape.sizes) == 2 and shape.sizes[0] == shape.sizes[1]
    return (shape.kind, shape.sizes, at if may_be_mask else None)


def _sizes(shapes: Sequence[InputShape], divided: set[int]) -> list[int]:
    """Candidate batch sizes: found in most inputs, then furthest to the front, first met."""
    holders: dict[int, list[int]] = {}
    for at, shape in enumerate(shapes):
        if shape.stays or at in divided:
            continue
        for size in dict.fromkeys(shape.sizes):
            if size >= 2:
                holders.setdefault(size, []).append(shape.sizes.index(size))
    order = list(holders)
    return sorted(
        order,
        key=lambda size: (-len(holders[size]), sum(holders[size]) / len(holders[size]), order.index(size)),
    )


def _uniformity(pick: tuple[int | None, ...]) -> tuple[int, int]:
    """Few different dimensions first, among them the lower."""
    dims = [dim for dim in pick if dim is not None]
    return (len(set(dims)), sum(dims))


def rows(torch: ModuleType, tensors: Sequence[Tensor], slicing: Slicing, low: int, high: int) -> list[Tensor]:
    """Private copies of the inputs, cut to samples `low` to `high`."""
    cut = [
        tensor.detach().clone() if dim is None else tensor.detach().narrow(dim, low, high - low).clone()
        for tensor, dim in zip(tensors, slicing.dims, strict=True)
    ]
    for offsets_at, indices_at in slicing.bags:
        offsets, indices = tensors[offsets_at].detach(), tensors[indices_at].detach()
        begin = int(offsets[low])  # type: ignore[index]
        end = int(offsets[high]) if high < slicing.size else indices.shape[0]  # type: ignore[index]
        cut[offsets_at] = torch.sub(cut[offsets_at], begin)
        cut[indices_at] = indices.narrow(0, begin, end - begin).clone()
    return cut


def resized(torch: ModuleType, tensors: Sequence[Tensor], slicing: Slicing, wanted: int) -> list[Tensor]:
    """Private copies of the inputs with `wanted` samples: cut, or tiled and cut."""
    whole, rest = divmod(wanted, slicing.size)
    parts = [rows(torch, tensors, slicing, 0, slicing.size) for _ in range(whole)]
    if rest:
        parts.append(rows(torch, tensors, slicing, 0, rest))
    if len(parts) == 1:
        return parts[0]
    result = []
    for at, dim in enumerate(slicing.dims):
        pieces = [part[at] for part in parts]
        if any(at == indices for _, indices in slicing.bags):
            result.append(torch.cat(pieces, 0))
        elif any(at == offsets for offsets, _ in slicing.bags):
            indices_at = next(indices for offsets, indices in slicing.bags if offsets == at)
            starts = itertools.accumulate((part[indices_at].shape[0] for part in parts[:-1]), initial=0)
            result.append(torch.cat([piece + start for piece, start in zip(pieces, starts, strict=True)], 0))  # type: ignore[operator]
        else:
            result.append(pieces[0] if dim is None else torch.cat(pieces, dim))
    return result


def describe(torch: ModuleType, tensors: Sequence[Tensor], stays: Sequence[bool]) -> list[InputShape]:
    """The inputs of a call as shapes; finds offsets of embedding bags."""
    kinds = [_kind(torch, tensor) for tensor in tensors]
    flat = [
        at
        for at, tensor in enumerate(tensors)
        if kinds[at] == "int" and not stays[at] and tensor.dim() == 1 and tensor.shape[0] >= 2
    ]
    bags = _bags(tensors, flat)
    return [
        InputShape(sizes=tuple(tensor.shape), kind=kind, stays=kept, indices=bags.get(at))
        for at, (tensor, kind, kept) in enumerate(zip(tensors, kinds, stays, strict=True))
    ]


def _kind(torch: ModuleType, tensor: Tensor) -> str:
    if tensor.dtype is torch.bool:
        return "bool"
    return "float" if torch.is_floating_point(tensor) or torch.is_complex(tensor) else "int"


def _bags(tensors: Sequence[Tensor], flat: Sequence[int]) -> dict[int, int]:
    """Positions of offsets, each with that of the indices that they divide.

    In order, where there are as many of both (a list of each, one entry a table); else the nearest.

    Args:
        flat: Positions of integers in one dimension.
    """
    offsets = {at: last for at in flat if (last := _last_offset(tensors[at])) is not None}

    def fits(at: int, other: int) -> bool:
        length = tensors[other].shape[0]
        return length >= offsets[at] and length > tensors[at].shape[0]

    others = [at for at in flat if at not in offsets]
    in_order = dict(zip(offsets, others, strict=False))
    if len(others) == len(offsets) and all(fits(at, other) for at, other in in_order.items()):
        return in_order
    found = {}
    for at in offsets:
        near = sorted((other for other in flat if other != at), key=lambda other: abs(other - at + 0.5))
        nearest = next((other for other in near if fits(at, other)), None)
        if nearest is not None:
            found[at] = nearest
    return found


def _last_offset(tensor: Tensor) -> int | None:
    """The last of integers that begin with 0 and do not fall; None for others."""
    values: list[int] = tensor.detach().tolist()  # type: ignore[attr-defined]
    falls = any(later < earlier for earlier, later in itertools.pairwise(values))
    return None if values[0] != 0 or falls or values[-1] == 0 else values[-1]


@dataclass(frozen=True, slots=True)
class Halves:
    """How one output of the full batch compares with the two halves'."""

    agrees: bool
    telling: bool  # it has a batch dimension, and its halves differ


def compare(
    torch: ModuleType, full: Tensor, parts: Sequence[Tensor | None], size: int, half: int
) -> Halves | None:
    """Whether an output's halves are the halves' outputs; None where it is one number for the batch.

    `parts` are the outputs of the first and the second half; None for one that has not been run.
    """
    given = next(part for part in parts if part is not None)
    if given.dim() != full.dim():
        return Halves(False, False)
    if full.numel() == 1:
        return None
    if tuple(given.shape) == tuple(full.shape):
        return Halves(all(part is None or close(torch, full, part) for part in parts), False)
    part_size = half if parts[0] is not None else size - half
    dim = next(
        (
            at
            for at, (whole, cut) in enumerate(zip(full.shape, given.shape, strict=True))
            if whole != cut and whole * part_size == cut * size
        ),
        None,
    )
    if dim is None:
        return Halves(False, False)
    border = full.shape[dim] * half // size
    lengths = (border, full.shape[dim] - border)
    pieces = [full.narrow(dim, 0, lengths[0]), full.narrow(dim, border, lengths[1])]
    for piece, part in zip(pieces, parts, strict=True):
        if part is not None and (tuple(piece.shape) != tuple(part.shape) or not close(torch, piece, part)):
            return Halves(False, False)
    common = min(lengths)
    # A diverged job gives NaN for every sample, which differs from itself and tells nothing.
    first, second = (torch.nan_to_num(piece.narrow(dim, 0, common)) for piece in pieces)
    return Halves(True, not torch.equal(first, second))


def is_mean_or_sum(torch: ModuleType, full: Tensor, parts: tuple[float, float], size: int, half: int) -> bool:
    """Whether a one-number output is the mean or the sum of the halves'."""
    first, second = parts
    whole = float(full)  # type: ignore[arg-type]
    mean = (first * half + second * (size - half)) / size
    slack = _tolerance(full) * max(abs(first), abs(second), abs(whole), 1e-6)
    return abs(whole - mean) <= slack or abs(whole - first - second) <= slack


def close(torch: ModuleType, one: Tensor, other: Tensor) -> bool:
    """Equal but for rounding: another batch sums in another order."""
    if tuple(one.shape) != tuple(other.shape):
        return False
    if not (torch.is_floating_point(one) or torch.is_complex(one)):
        return bool(torch.equal(one, other))
    if one.numel() == 0:
        return True
    left, right = torch.nan_to_num(one.detach().float()), torch.nan_to_num(other.detach().float())  # type: ignore[attr-defined]
    scale = float(left.abs().max())
    return float((left - right).abs().max()) <= _tolerance(one) * max(scale, 1e-6)


def _tolerance(tensor: Tensor) -> float:
    return 3e-2 if tensor.element_size() == 2 else 1e-3
