"""A collective outside DDP's own is seen in a recorded step, which runs as it would without the watch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from autobrrr.injected.batch_probe.collective_watch import (
    BACKWARD,
    MODULE,
    WRAPPER,
    CollectiveWatch,
    unexpected,
)
from autobrrr.injected.batch_probe.step_recorder import Recorder
from autobrrr.injected.job_state.operator_log import Logged
from autobrrr.injected.live_torch.dispatch_modes import modes_on_stack
from autobrrr.injected.live_torch.torch_types import Abstain

REDUCES = "c10d::allreduce_"


def logged(*events: str | None) -> Logged:
    return Logged(events=list(events), elsewhere=frozenset(), whole=True)


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([WRAPPER, REDUCES, None, MODULE, "aten::mm", None, None, None], None),
        ([WRAPPER, MODULE, REDUCES, None, None, None], REDUCES),
        ([WRAPPER, MODULE, "aten::mm", None, None, REDUCES, None, None], None),
        ([MODULE, REDUCES, None, None], REDUCES),
        (
            [MODULE, "aten::mm", None, None, "_c10d_functional::all_reduce", None],
            "_c10d_functional::all_reduce",
        ),
        ([BACKWARD, MODULE, REDUCES, None, None, None], None),
        ([BACKWARD, "aten::mm", None, None, REDUCES, None], REDUCES),
    ],
)
def test_only_those_of_ddp_are_expected(events: list[str | None], found: str | None) -> None:
    assert unexpected(logged(*events)) == found


def test_the_recorded_step_of_a_rank_runs_under_no_dispatch_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CollectiveWatch, "if_distributed", CollectiveWatch)
    modes: list[int] = []

    class Product(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            modes.append(modes_on_stack(torch))
            return torch.sigmoid(super().forward(x)).prod(-1)

    model, x = Product(8, 24), torch.rand(32, 8)

    def gradient() -> torch.Tensor:
        model.zero_grad()
        model(x).log().sum().backward()
        assert model.weight.grad is not None
        return model.weight.grad.view(torch.int32)

    plain = gradient()
    recorder = Recorder(torch)
    recorder.start()
    recorded = gradient()
    assert recorder.stop().nodes
    assert modes == [0, 0]
    assert torch.equal(plain, recorded)


def test_a_step_in_which_the_job_was_profiled_is_not_known() -> None:
    watch = CollectiveWatch(torch)
    with torch.profiler.profile():
        torch.ones(2).sum()
    assert "profiled" in str(watch.stop())


def test_a_job_that_is_being_profiled_is_not_watched() -> None:
    with torch.profiler.profile(), pytest.raises(Abstain, match="profiled"):
        CollectiveWatch(torch)
