"""Digests of tensors: equal bits, rows, and how far two tensors are apart."""

from __future__ import annotations

import math

import pytest
import torch

from autobrrr.agent.audit import tensor_digests


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_one_bit_changes_the_digest(kind: torch.dtype) -> None:
    one = torch.ones(3, 5).to(kind)
    other = one.clone()
    assert tensor_digests.bits(torch, one) == tensor_digests.bits(torch, other) != 0
    other[1, 2] = 0
    assert tensor_digests.bits(torch, one) != tensor_digests.bits(torch, other)


def test_the_order_and_the_shape_are_part_of_the_digest() -> None:
    one = torch.arange(6.0)
    found = {tensor_digests.bits(torch, each) for each in (one, one.flip(0), one.reshape(2, 3))}
    assert len(found) == 3


def test_equal_rows_have_equal_digests() -> None:
    rows = tensor_digests.rows(torch, torch.tensor([[1, 2], [3, 4], [1, 2]]))
    assert rows[0] == rows[2] != rows[1]
    assert len(tensor_digests.rows(torch, torch.zeros(2, 3, dtype=torch.bfloat16))) == 2


def test_the_norm_is_of_all_tensors_and_none_without_one() -> None:
    assert tensor_digests.norm(torch, [torch.tensor([3.0]), None, torch.tensor([4.0])]) == 5.0
    assert tensor_digests.norm(torch, [None]) is None
    assert tensor_digests.norm(torch, [torch.tensor([math.nan])]) is None


def test_projections_tell_how_far_apart_two_vectors_are_and_draw_no_number_of_the_job() -> None:
    state = torch.get_rng_state()
    ratios = []
    for number in range(40):
        draw = torch.Generator().manual_seed(100 + number)
        one = [torch.randn(300, generator=draw), torch.randn(20, 5, generator=draw)]
        other = [each + 1e-3 * torch.randn(each.shape, generator=draw) for each in one]
        true = tensor_digests.norm(torch, [a - b for a, b in zip(one, other, strict=True)])
        pairs = zip(*(tensor_digests.projections(torch, each) for each in (one, other)), strict=True)
        ratios.append(sum((a - b) ** 2 for a, b in pairs) / tensor_digests.PROJECTIONS / true**2)
    assert sum(ratios) / len(ratios) == pytest.approx(1.0, abs=0.3)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_rounding_leaves_of_a_gradient_is_told_from_a_small_and_from_no_gradient() -> None:
    gradients = {1: torch.tensor([1.0, 1e-9, 0.0, -1e-3]), 2: None, 3: torch.ones(4)}
    (key, mask), *others = tensor_digests.noisy(torch, gradients).items()
    assert (key, mask.tolist(), others) == (1, [False, True, False, False], [])
    assert tensor_digests.noisy(torch, {1: torch.zeros(3), 2: None}) == {}


def test_what_a_checkpoint_holds_is_counted_in_containers_models_and_optimizers() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    weights, buffers = 4 * 3 + 3 + 3 + 3, 3 + 3 + 1
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    moments = 2 * weights + 4  # and a count of steps for each parameter
    assert tensor_digests.elements(model.state_dict()) == weights + buffers
    assert tensor_digests.elements(model) == weights + buffers
    both = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    assert tensor_digests.elements(both) == weights + buffers + moments
    assert tensor_digests.elements([optimizer, {"deep": (torch.zeros(2, 5),)}]) == moments + 10
    itself: list[object] = [torch.zeros(1)]
    itself.append(itself)
    assert tensor_digests.elements(itself) <= tensor_digests.MOST_SAVED
    assert tensor_digests.elements("weights") == 0
