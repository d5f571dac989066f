"""What a call has to move is told by its shapes: of a sparse tensor, by what it lists."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from autobrrr.injected.measure.op_work import OpWorkReader

ROWS, WIDTH, LISTED = 5000, 8, 12
ROW_BYTES, INDEX_BYTES = 4 * WIDTH, 8
LISTED_BYTES = LISTED * (ROW_BYTES + INDEX_BYTES)


def listed_rows() -> Tensor:
    rows = torch.arange(LISTED)[None]
    return torch.sparse_coo_tensor(rows, torch.ones(LISTED, WIDTH), (ROWS, WIDTH), check_invariants=False)


def moved(op: Callable[..., object], *args: object) -> int:
    return OpWorkReader().of(op, args, {}, op(*args)).bytes


@pytest.mark.parametrize(
    ("op", "made", "expected"),
    [
        (torch.ops.aten.add_.Tensor, lambda: (torch.zeros(ROWS, WIDTH), listed_rows()), 3 * LISTED_BYTES),
        (torch.ops.aten.clone.default, lambda: (listed_rows(),), 2 * LISTED_BYTES),
        (
            torch.ops.aten.sparse_mask.default,
            lambda: (torch.zeros(ROWS, WIDTH), listed_rows()),
            3 * LISTED_BYTES,
        ),
        (
            torch.ops.aten.add_.Tensor,
            lambda: (torch.zeros(ROWS, WIDTH), torch.ones(ROWS, WIDTH)),
            3 * ROWS * ROW_BYTES,
        ),
    ],
    ids=["dense and sparse", "sparse", "mask", "dense"],
)
def test_rows_that_are_not_listed_are_not_moved(
    op: Callable[..., object], made: Callable[[], tuple[object, ...]], expected: int
) -> None:
    assert moved(op, *made()) == expected
