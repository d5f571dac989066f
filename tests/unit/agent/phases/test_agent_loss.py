"""A loss is read from memory: right for every kind of scalar, silent where there is none."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autobrrr.agent.phases.sampled_step import FINITE, NOT_FINITE, UNKNOWN, loss_finite

KINDS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_scalar_is_told_apart(kind: torch.dtype) -> None:
    largest = torch.finfo(kind).max
    for value in (0.0, -0.0, 2.5, -largest, largest, torch.finfo(kind).tiny):
        assert loss_finite(torch.tensor(value, dtype=kind)) == FINITE
    for value in (float("nan"), float("inf"), -float("inf")):
        assert loss_finite(torch.tensor(value, dtype=kind)) == NOT_FINITE


def test_a_view_into_a_larger_tensor_is_read_at_its_place() -> None:
    row = torch.tensor([1.0, float("nan"), 3.0])
    assert [loss_finite(each) for each in row] == [FINITE, NOT_FINITE, FINITE]


class Wrapped(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "thing",
    [
        None,
        (),
        1.0,
        torch.ones(2),
        torch.tensor(1),
        torch.ones((), device="meta"),
        torch.ones(1).to_sparse(),
        torch.ones(()).as_subclass(Wrapped),
    ],
    ids=repr,
)
def test_anything_else_is_not_known(thing: object) -> None:
    assert loss_finite(thing) == UNKNOWN


def test_no_operator_is_dispatched() -> None:
    seen = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func)
            return func(*args, **(kwargs or {}))

    loss = torch.tensor(1.0, requires_grad=True) * 2
    with Watching():
        assert loss_finite(loss) == FINITE
    assert seen == []
