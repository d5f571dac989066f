"""Tensors as short numbers: equal digests mean equal bits; norms say how far two tensors are apart.

In: tensors of the job. Out: whole numbers and floats. No random number is drawn, no tensor is changed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from ..live_torch.job_signals import OF_TORCH

PROJECTIONS, MOST_PROJECTED = 8, 1 << 20
MOST_ROWS = 4096
MOST_ROW_BYTES = 1 << 16
MOST_SAVED = 1 << 17  # things that are looked at in one checkpoint
NOISE = 1e-6  # of the root mean square of all gradients; float32 sums leave some 1e-7
_KEPT_BITS = (1 << 63) - 1


def bits(torch: ModuleType, tensor: Any) -> int:
    """A digest of all bits of a dense tensor, of any shape and kind; 0 where it can't be read."""
    with OF_TORCH:
        flat = _as_integers(torch, tensor)
        plain = int(flat.sum(dtype=torch.int64))
        wide = flat[: 1 << 20].to(torch.int64)
        places = torch.arange(1, len(wide) + 1, dtype=torch.int64, device=wide.device)
        placed = int((wide * (places * 2654435761 | 1)).sum())
        return hash((plain, placed, tuple(tensor.shape))) & _KEPT_BITS
    return 0


def rows(torch: ModuleType, tensor: Any) -> list[str]:
    """A digest of each row, which is a sample: shape [batch, …]. At most 4096 rows, 64 KiB of each."""
    with OF_TORCH:
        plain = tensor.detach()[:MOST_ROWS].cpu().contiguous()
        table = plain.reshape(plain.shape[0], -1).view(torch.uint8)[:, :MOST_ROW_BYTES].numpy()
        return [hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest() for row in table]
    return []


def plain(torch: ModuleType, tensor: Any) -> Any:
    """The same numbers dense and real: of sparse gradients, nested tensors, complex ones."""
    found = tensor.detach()
    if found.is_nested:
        found = found.to_padded_tensor(0.0)
    elif found.layout != torch.strided:
        found = found.to_dense()
    return torch.view_as_real(found.resolve_conj()) if found.is_complex() else found


def norm(torch: ModuleType, tensors: Iterable[Any]) -> float | None:
    """The length of all tensors together; None without one, and where it is not finite or can't be read."""
    total, seen = 0.0, False
    with OF_TORCH:
        for tensor in tensors:
            if tensor is None or not (tensor.is_floating_point() or tensor.is_complex()):
                continue
            seen = True
            total += float(torch.linalg.vector_norm(plain(torch, tensor), dtype=torch.float64)) ** 2
        return math.sqrt(total) if seen and math.isfinite(total) else None
    return None


def projections(torch: ModuleType, tensors: Iterable[Any | None]) -> list[float]:
    """Sums over all elements under `PROJECTIONS` fixed patterns of signs, each 1 or -1 at random.

    The differences of two such lists have the mean square of the distance between the tensors, for vectors of
    any length: how far apart two runs are can be told without keeping either. Of a tensor with more than a
    million elements evenly spaced ones stand for all. Empty where they are not finite.
    """
    found = torch.zeros(PROJECTIONS, dtype=torch.float64, device="cpu")
    for number, tensor in enumerate(tensors):
        if tensor is None or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        flat = plain(torch, tensor).reshape(-1)
        stride = max(1, -(-flat.numel() // MOST_PROJECTED))
        taken = flat[::stride].cpu().double()
        draw = torch.Generator("cpu").manual_seed(number)
        shape = PROJECTIONS, len(taken)
        signs = torch.randint(0, 2, shape, generator=draw, dtype=torch.int8, device="cpu")
        found += (signs.double() * 2 - 1) @ taken * math.sqrt(stride)
    return [float(each) for each in found] if bool(found.isfinite().all()) else []


def elements(saved: Any) -> int:
    """Numbers in all tensors of what is saved: in containers, of models and of optimizers. Calls no hook."""
    total, waiting, seen = 0, [saved], 0
    while waiting and seen < MOST_SAVED:
        each, seen = waiting.pop(), seen + 1
        if hasattr(each, "element_size"):
            total += int(each.numel())
        elif isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, (list, tuple, set)):
            waiting += each
        elif hasattr(each, "named_buffers"):
            waiting += [*each.parameters(), *each.buffers()]
        elif hasattr(each, "param_groups"):
            waiting.append(each.state)
    return total


def noisy(torch: ModuleType, gradients: Mapping[int, Any | None]) -> dict[int, Any]:
    """Masks of the elements whose gradient is nothing but what rounding leaves of terms that cancel.

    A bias of attention's keys changes no output: its gradient is zero but for rounding. Adam divides by the
    gradient's size, and so takes full steps in directions that are another order of summation away. Gradients
    of zero are none of these. Tensors without such an element are left out.
    """
    dense = {
        key: each.detach()
        for key, each in gradients.items()
        if each is not None and each.layout == torch.strided and each.is_floating_point()
    }
    length, count = norm(torch, dense.values()), sum(each.numel() for each in dense.values())
    if not length:
        return {}
    most = NOISE * length / math.sqrt(count)
    masks = {key: (each.abs() < most) & (each != 0) for key, each in dense.items()}
    return {key: mask for key, mask in masks.items() if mask.any()}


def _as_integers(torch: ModuleType, tensor: Any) -> Any:
    found = tensor.detach()
    if found.is_complex():
        found = torch.view_as_real(found)
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = found.contiguous().reshape(-1)
    return flat.view(kinds[found.element_size()])
