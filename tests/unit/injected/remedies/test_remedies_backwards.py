"""Backward passes as they come into a module's calls: what compiled code could not do is told beforehand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from autobrrr.injected.remedies.model_calls.backward_watch import ENOUGH, Backwards

Heads = tuple[torch.Tensor, torch.Tensor]
ModelCall = Callable[[torch.Tensor], Heads]
Step = Callable[[ModelCall], object]


class TwoHeads(nn.Module):
    """Two results that share nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> Heads:
        return self.one(x).tanh(), self.two(x).tanh()


def watched(step: Step, steps: int = ENOUGH) -> Backwards:
    torch.manual_seed(0)
    model, seen = TwoHeads(), Backwards(torch)

    def call(x: torch.Tensor) -> Heads:
        result = model(x)
        seen.watch("kind", result)
        return result  # type: ignore[no-any-return]

    for _ in range(steps):
        step(call)
    return seen


def both(call: ModelCall) -> None:
    one, two = call(torch.randn(3, 4))
    (one + two).sum().backward()


def first(call: ModelCall) -> None:
    call(torch.randn(3, 4))[0].sum().backward()


def test_one_backward_of_the_first_order_is_no_trouble_and_enough_after_a_few_calls() -> None:
    assert not watched(both, ENOUGH - 1).enough("kind")
    seen = watched(both)
    assert seen.enough("kind")
    assert seen.trouble is None


def test_calls_without_a_backward_are_never_enough() -> None:
    assert not watched(lambda call: sum(call(torch.randn(3, 4))).detach(), 20).enough("kind")


def penalty(call: ModelCall) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(call(x)[0].sum(), x, create_graph=True)
    slope.square().sum().backward()


def retained(call: ModelCall) -> None:
    one, _ = call(torch.randn(3, 4))
    one.sum().backward(retain_graph=True)
    one.mean().backward()


def one_by_one(call: ModelCall) -> None:
    for head in call(torch.randn(3, 4)):
        head.sum().backward()


@pytest.mark.parametrize(
    ("step", "why"), [(penalty, "create_graph"), (retained, "more than one"), (one_by_one, "more than one")]
)
def test_another_kind_of_backward_is_told_from_its_first_step(step: Step, why: str) -> None:
    assert why in str(watched(step, 1).trouble)


def test_results_that_the_loss_does_not_use_lead_to_no_gradient_in_a_rehearsal() -> None:
    seen = watched(first)
    one, two = seen.part_used("kind")(TwoHeads())(torch.randn(3, 4))  # type: ignore[misc]
    assert (one.requires_grad, two.requires_grad) == (True, False)
    assert seen.trouble is None


def test_a_loss_that_uses_now_this_and_now_that_result_is_trouble() -> None:
    turn = iter(range(ENOUGH))
    seen = watched(lambda call: call(torch.randn(3, 4))[next(turn) % 2].sum().backward())
    seen.part_used("kind")
    assert "not always use the same" in str(seen.trouble)


@pytest.mark.parametrize(("step", "trouble"), [(both, False), (first, True)])
def test_after_the_rehearsal_calls_are_held_to_the_results_that_were_used(step: Step, trouble: bool) -> None:
    seen, model = watched(both), TwoHeads()
    seen.part_used("kind")

    def call(x: torch.Tensor) -> Heads:
        result = model(x)
        seen.watch("kind", result)
        return result  # type: ignore[no-any-return]

    for _ in range(2):
        step(call)
    assert (seen.trouble is not None) == trouble


def test_watching_changes_no_bit_of_a_gradient() -> None:
    found = []
    for look in (False, True):
        torch.manual_seed(1)
        model = TwoHeads()
        result = model(torch.randn(3, 4))
        if look:
            Backwards(torch).watch("kind", result)
        sum(result).sum().backward()  # type: ignore[union-attr]
        found.append([each.grad for each in model.parameters()])
    assert all(map(torch.equal, *found))  # type: ignore[arg-type]
