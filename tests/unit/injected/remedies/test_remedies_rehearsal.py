"""How far another way of calling may be from eager code: never less than eager code is from itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from autobrrr.injected.remedies.model_calls.rehearsal import CLOSE, CLOSE_IN_HALF, OF_NOISE, Rehearsal


def rounded(module: nn.Module, off: Callable[[int], float]) -> Callable[..., object]:
    """A call of the module whose result is off by so much, from call to call."""
    calls = [0]

    def call(*args: object) -> object:
        calls[0] += 1
        return module._call_impl(*args) * (1 + off(calls[0]))

    return call


@pytest.mark.parametrize(
    ("eager_off", "other_off", "refused"),
    [
        (0.0, CLOSE / 2, False),
        (0.0, 4 * CLOSE, True),  # eager code always gives the same: rounding is no excuse
        (3 * CLOSE, 4 * CLOSE, False),
        (2 * CLOSE, 2 * CLOSE * OF_NOISE * 1.5, True),
        (CLOSE_IN_HALF, 2 * CLOSE_IN_HALF, True),
    ],
)
def test_what_eager_code_differs_by_itself_is_no_fault(
    eager_off: float, other_off: float, refused: bool
) -> None:
    module = nn.Linear(16, 4)
    rehearsal = Rehearsal(torch, module, own_stream=False)
    eager = rounded(module, lambda call: eager_off if call == 2 else 0.0)
    why = rehearsal.why_not(eager, rounded(module, lambda _: other_off), [torch.randn(8, 16)], {})
    assert (why is not None) == refused
    assert why is None or "off by" in why


def test_eager_code_is_run_once_more_only_where_that_may_decide() -> None:
    for other_off, runs in ((0.0, 1), (4 * CLOSE, 2), (2 * CLOSE_IN_HALF, 1)):
        module, seen = nn.Linear(16, 4), []
        eager = rounded(module, lambda call, seen=seen: float(bool(seen.append(call))))
        rehearsal = Rehearsal(torch, module, own_stream=False)
        rehearsal.why_not(eager, rounded(module, lambda _, off=other_off: off), [torch.randn(8, 16)], {})
        assert len(seen) == runs
