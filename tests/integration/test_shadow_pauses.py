"""A sweep asks before each replay what it will take, and leaves out what a pause has no room for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from support.shadow_loop import train
from support.shadow_refused import trap

pytestmark = pytest.mark.integration

MS = 1_000_000


class Work:
    """A clock that forwards move on: a replay takes as long as they say."""

    now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


@pytest.mark.parametrize("along", ["batch"])
@pytest.mark.parametrize("first_time", [1.0, 4.0], ids=["as dear each time", "dear at first"])
def test_no_slice_of_a_sweep_takes_more_than_a_pause_may(along: str, first_time: float) -> None:
    """1 ms a step of 8 samples; a replay of a size that is new may take four times as long."""
    clock = Work()
    met: set[int] = set()

    def work(samples: int) -> None:
        clock.now_ns += int(samples * MS / 8 * (1 if samples in met else first_time))
        met.add(samples)

    class Works(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(12, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.work(x.shape[0])  # type: ignore[attr-defined]
            return self.linear(x)

    with pytest.MonkeyPatch.context() as patch:
        space = {"__name__": "torch.work", "work": work}  # a library's: what it does is not looked into
        exec("def works(samples): work(samples)", space)
        patch.setattr(torch, "work", space["works"], raising=False)
        params: dict[str, object] = {"sweep": along, "rounds": 2}
        outcome = train(trap(Works), 200, probe=True, params=params, clock=clock)
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok", outcome.probed["why"]
    assert outcome.probed["longest_pause_ns"] <= 30 * MS  # type: ignore[operator]
    sizes = [point["batch"] for point in outcome.probed["points"]]  # type: ignore[attr-defined]
    assert sizes[:3] == [2, 4, 8]
    assert "more than a pause may" in " ".join(outcome.probed["notes"])  # type: ignore[arg-type]
