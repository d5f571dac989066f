"""Proposals for the batch dimension, slicing, tiling and the comparison of halves."""

from __future__ import annotations

import pytest
import torch

from autobrrr.injected.batch_probe.batch_dim import (
    InputShape,
    Slicing,
    compare,
    describe,
    is_mean_or_sum,
    proposals,
    resized,
    rows,
)


def shape(*sizes: int, kind: str = "float", stays: bool = False) -> InputShape:
    return InputShape(sizes=sizes, kind=kind, stays=stays)


def test_the_size_that_most_inputs_share_is_proposed_first() -> None:
    first = next(proposals([shape(8, 12), shape(8, kind="int"), shape(8, 3, 5)]))
    assert (first.size, first.dims) == (8, (0, 0, 0))


def test_parameters_among_the_inputs_are_never_sliced() -> None:
    assert all(one.dims[1] is None for one in proposals([shape(8, 12), shape(8, 12, stays=True)]))


def test_time_first_is_proposed_as_well() -> None:
    assert Slicing(size=8, dims=(1,)) in list(proposals([shape(5, 8, 6)]))


def test_a_square_mask_is_tried_in_and_out() -> None:
    dims = [one.dims for one in proposals([shape(8, 8, kind="int"), shape(8, 8, kind="bool")])]
    assert dims.index((0, None)) < dims.index((1, None))
    assert (0, 0) in dims


def test_there_are_never_more_than_sixteen_proposals() -> None:
    assert len(list(proposals([shape(4, 4, 4, 4, kind=kind) for kind in ("int", "bool", "float")]))) == 16


def test_no_size_below_two_is_a_batch() -> None:
    assert list(proposals([shape(1, 1)])) == []


def test_rows_are_private_copies() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    (cut,) = rows(torch, [x], Slicing(size=4, dims=(0,)), 2, 4)
    assert torch.equal(cut, x[2:])
    cut.zero_()
    assert x.sum() == 66


@pytest.mark.parametrize("wanted", [1, 3, 4, 8, 10])
def test_a_batch_of_any_size_is_made_of_the_samples_in_turn(wanted: int) -> None:
    x = torch.randn(5, 4, 2)
    (made,) = resized(torch, [x], Slicing(size=4, dims=(1,)), wanted)
    assert torch.equal(made, torch.stack([x[:, at % 4] for at in range(wanted)], 1))


def test_offsets_of_a_bag_are_found_and_divide_their_indices() -> None:
    indices, offsets, dense = torch.arange(10), torch.tensor([0, 3, 3, 7]), torch.randn(4, 2)
    shapes = describe(torch, [dense, indices, offsets], [False] * 3)
    assert shapes[2].indices is not None
    assert shapes[2].indices == 1
    slicing = next(proposals(shapes))
    assert slicing.bags == ((2, 1),)

    cut = rows(torch, [dense, indices, offsets], slicing, 2, 4)
    assert cut[1].tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert cut[2].tolist() == [0, 4]

    doubled = resized(torch, [dense, indices, offsets], slicing, 8)
    bag = torch.nn.EmbeddingBag(10, 3, mode="sum")
    once = bag(indices, offsets)
    assert torch.equal(bag(doubled[1], doubled[2]), torch.cat([once, once]))


def test_offsets_of_several_tables_divide_the_indices_of_the_same_table() -> None:
    indices = [torch.arange(5, 14), torch.arange(7, 18)]
    offsets = [torch.tensor([0, 3, 3, 7]), torch.tensor([0, 1, 5, 9])]
    shapes = describe(torch, [torch.randn(4, 2), *indices, *offsets], [False] * 5)
    assert [one.indices for one in shapes] == [None, None, None, 1, 2]
    assert next(proposals(shapes)).bags == ((3, 1), (4, 2))
    by_turns = describe(torch, [indices[0], offsets[0], indices[1], offsets[1]], [False] * 4)
    assert [one.indices for one in by_turns] == [None, 0, None, 2]


def test_labels_that_begin_with_zero_are_no_offsets() -> None:
    shapes = describe(torch, [torch.randn(4, 2), torch.tensor([0, 2, 1, 2])], [False, False])
    assert shapes[1].indices is None


def test_halves_agree_along_the_dimension_that_shrank() -> None:
    full = torch.randn(3, 8)
    outcome = compare(torch, full, (full[:, :4], full[:, 4:]), 8, 4)
    assert outcome is not None
    assert outcome.agrees
    assert outcome.telling


def test_a_second_half_that_differs_refutes() -> None:
    full = torch.randn(8, 3)
    outcome = compare(torch, full, (full[:4], full[4:] + 0.1), 8, 4)
    assert outcome is not None
    assert not outcome.agrees


def test_halves_that_are_alike_tell_nothing() -> None:
    full = torch.ones(8, 3)
    outcome = compare(torch, full, (full[:4], full[4:]), 8, 4)
    assert outcome is not None
    assert outcome.agrees
    assert not outcome.telling


def test_samples_that_all_came_out_as_nan_tell_nothing() -> None:
    full = torch.full((8, 3), float("nan"))
    outcome = compare(torch, full, (full[:4], full[4:]), 8, 4)
    assert outcome is not None
    assert not outcome.telling


def test_an_odd_batch_divides_into_unequal_halves() -> None:
    full = torch.randn(7, 3)
    outcome = compare(torch, full, (full[:3], full[3:]), 7, 3)
    assert outcome is not None
    assert outcome.agrees


def test_a_loss_may_be_the_mean_or_the_sum_of_the_halves_and_nothing_else() -> None:
    assert is_mean_or_sum(torch, torch.tensor(2.0), (1.0, 3.0), 8, 4)
    assert is_mean_or_sum(torch, torch.tensor(4.0), (1.0, 3.0), 8, 4)
    assert not is_mean_or_sum(torch, torch.tensor(2.5), (1.0, 3.0), 8, 4)
