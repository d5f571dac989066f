"""What recorded calls are handed beside tensors: replays get the very same, and must not move it on."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

from support.batch_probe.shadow_loop import Kind, train

pytestmark = pytest.mark.integration

Forward = Callable[[nn.Module, torch.Tensor, object], torch.Tensor]


class Counts:
    """An object of the job's own."""

    def __init__(self) -> None:
        self.seen = 0


class Takes(nn.Module):
    """Takes something beside its batch."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.inner = nn.Linear(12, 4)
        self.use = forward

    def forward(self, x: torch.Tensor, given: object) -> torch.Tensor:
        return self.use(self.inner, x, given)


def draws(inner: nn.Module, x: torch.Tensor, given: torch.Generator) -> torch.Tensor:
    return inner(x) * torch.rand(4, generator=given)


def rolls(inner: nn.Module, x: torch.Tensor, given: random.Random) -> torch.Tensor:
    return inner(x) * (1 + 0 * given.random())


def counts(inner: nn.Module, x: torch.Tensor, given: Counts) -> torch.Tensor:
    given.seen += x.shape[0]
    return inner(x)


def job(forward: Forward | None, made: Callable[[], object], show: Callable[[object], object]) -> Kind:
    """A job whose forward takes a thing, or whose loop draws from it where there is no forward."""
    model = nn.Linear(12, 4) if forward is None else Takes(forward)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    given, x = made(), torch.randn(8, 12)
    shown: list[object] = []

    def step() -> None:
        optimizer.zero_grad()
        if forward is None:
            loss = (model(x).square() * torch.rand(4, generator=given)).mean()
        else:
            loss = model(x, given).square().mean()
        loss.backward()
        optimizer.step()
        shown.append(show(given))

    return Kind([model, optimizer], step, shown=shown)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(1)


KINDS: dict[str, Callable[[], Kind]] = {
    "a generator in the loop": lambda: job(None, seeded, lambda it: it.get_state().sum().item()),
    "a generator": lambda: job(draws, seeded, lambda it: it.get_state().sum().item()),
    "a generator of Python's": lambda: job(rolls, lambda: random.Random(3), lambda it: it.random()),
    "an object": lambda: job(counts, Counts, lambda it: it.seen),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_calls_are_handed_beside_tensors_is_as_without_a_probe(name: str) -> None:
    plain, probed = (train(KINDS[name], 48, probe=probe) for probe in (False, True))
    assert probed.probed is not None
    assert probed.shown == plain.shown
    assert probed.fingerprint == plain.fingerprint
