"""While a profiler, a mode or hooks of the job are on, nothing is replayed: they see the job alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from support.batch_probe.shadow_loop import Kind, train
from support.batch_probe.shadow_refused import trap

pytestmark = pytest.mark.integration

ON, ROUND = 8, 24  # steps


class Calls(TorchFunctionMode):
    """Counts the functions that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_function__(
        self, function: Callable[..., object], types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        self.seen += 1
        return function(*args, **(kwargs or {}))


class Saved(torch.autograd.graph.saved_tensors_hooks):
    """Counts the tensors that are kept for a backward."""

    def __init__(self) -> None:
        super().__init__(self._note, lambda tensor: tensor)
        self.seen = 0

    def _note(self, tensor: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return tensor


WATCHES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "profile": (torch.autograd.profiler.profile, lambda made: sorted(e.name for e in made.function_events)),
    "flops": (lambda: FlopCounterMode(display=False), lambda made: made.get_total_flops()),
    "function mode": (Calls, lambda made: made.seen),
    "hooks on saved tensors": (Saved, lambda made: made.seen),
}


def watched(name: str) -> Callable[[], Kind]:
    """A job that watches its own steps now and then."""
    make, seen = WATCHES[name]

    def job() -> Kind:
        kind = trap(lambda: nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4)))()
        plain, on, number = kind.step, ExitStack(), 0
        watch: Any = None

        def step() -> None:
            nonlocal number, watch
            if number % ROUND == 0:
                watch = make()
                on.enter_context(watch)
            plain()
            number += 1
            if number % ROUND == ON:
                on.close()
                kind.shown.append(seen(watch))

        kind.step, kind.end = step, on.close
        return kind

    return job


@pytest.mark.parametrize("name", WATCHES)
def test_what_the_job_records_of_its_steps_holds_nothing_of_ours(name: str) -> None:
    never = train(watched(name), 120, probe=False)
    probed = train(watched(name), 120, probe=True)
    assert probed.shown == never.shown
    assert len(never.shown) == 5
    assert probed.fingerprint == never.fingerprint
    assert probed.probed is not None
    assert probed.probed["status"] == "ok", probed.probed
    assert probed.steps_of_probe > ROUND + ON, "it went on around a watch"
