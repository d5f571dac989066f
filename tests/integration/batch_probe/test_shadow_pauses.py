"""A sweep asks before each replay what it will take, and leaves out what a pause has no room for."""

from __future__ import annotations

import pytest
import torch

from support.batch_probe.shadow_loop import OneLayer, Outcome, train
from support.batch_probe.shadow_refused import trap

pytestmark = pytest.mark.integration

MS = 1_000_000
WORK = """
met = set()

def work(samples):
    clock.now_ns += int(ns * samples * (1 if samples in met else first))
    met.add(samples)
"""


class Work:
    """A clock that forwards move on: a replay takes as long as they say."""

    now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


def outcome_of(
    step_ms: float, first_time: float, params: dict[str, object], clock: Work, steps: int = 200
) -> Outcome:
    """Probes a job of 8 samples; a replay of a size that is new may take several times as long."""

    class Works(OneLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.work(x.shape[0])  # type: ignore[attr-defined]
            return self.linear(x)

    with pytest.MonkeyPatch.context() as patch:
        # Of a library's: what it does is not looked into.
        space = {"__name__": "torch.work", "clock": clock, "ns": step_ms * MS / 8, "first": first_time}
        exec(WORK, space)
        patch.setattr(torch, "work", space["work"], raising=False)
        return train(trap(Works), steps, probe=True, params=params, clock=clock)


def test_replays_of_a_long_step_show_what_decides_first() -> None:
    params: dict[str, object] = {"factors": [0.25, 0.5, 1, 2], "rounds": 5}
    outcome = outcome_of(200, 1.2, params, Work())
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok", outcome.probed["why"]
    assert [one["decides_in"] for one in outcome.so_far[:5]] == [3, 2, 1, 0, 0]
    planned = outcome.so_far[0]["planned"]
    assert [(one["replays"], one["planned"]) for one in outcome.so_far[:3]] == [
        (2, planned),
        (3, planned),
        (4, planned),
    ]
    assert [point["batch"] for point in outcome.so_far[3]["points"]] == [8, 16]  # type: ignore[attr-defined]
    durations = {point["batch"]: point["shadow_ns"] for point in outcome.probed["points"]}  # type: ignore[attr-defined]
    assert sorted(durations) == [2, 4, 8, 16]
    assert all(max(taken) < 1.1 * min(taken) for size, taken in durations.items() if size > 4)


@pytest.mark.parametrize("along", ["batch"])
@pytest.mark.parametrize("first_time", [1.0, 4.0], ids=["as dear each time", "dear at first"])
def test_no_slice_of_a_sweep_takes_more_than_a_pause_may(along: str, first_time: float) -> None:
    """1 ms a step of 8 samples; a replay of a size that is new may take four times as long."""
    outcome = outcome_of(1, first_time, {"sweep": along, "rounds": 2}, Work())
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok", outcome.probed["why"]
    assert outcome.probed["longest_pause_ns"] <= 30 * MS  # type: ignore[operator]
    sizes = [point["batch"] for point in outcome.probed["points"]]  # type: ignore[attr-defined]
    assert sizes[:3] == [2, 4, 8]
    assert "more than a pause may" in " ".join(outcome.probed["notes"])  # type: ignore[arg-type]


def test_twice_the_batch_is_left_out_where_it_would_take_longer_than_a_pause_may() -> None:
    """4 ms for each sample."""
    outcome = outcome_of(32, 1.0, {"rounds": 2, "pause_ns": 70 * MS}, Work(), 40)
    assert outcome.probed is not None
    assert [point["batch"] for point in outcome.probed["points"]] == [2, 4, 8]  # type: ignore[attr-defined]
    assert "2B left out" in outcome.probed["notes"][0]  # type: ignore[index]
    assert outcome.probed["longest_pause_ns"] <= 70 * MS  # type: ignore[operator]


@pytest.mark.parametrize("first_time", [1.0, 1.9], ids=["as dear each time", "dear at first"])
@pytest.mark.parametrize("pause_ms", [33, 45, 62])
def test_what_must_be_compared_at_one_boundary_fits_into_a_pause_or_is_left(
    pause_ms: int, first_time: float
) -> None:
    """A forward takes 32 ms; two of them, or one and two halves, have to be made with the same weights."""
    params: dict[str, object] = {"rounds": 2, "pause_ns": pause_ms * MS}
    outcome = outcome_of(32, first_time, params, Work(), 40)
    assert outcome.probed is not None
    assert outcome.probed["status"] == "abstained"
    assert f"more than a pause may ({pause_ms} ms)" in str(outcome.probed["why"])
    assert outcome.probed["longest_pause_ns"] <= max(pause_ms, 32 * first_time + 1) * MS  # type: ignore[operator]


def test_tensors_that_take_longer_to_keep_than_a_pause_may_are_not_kept() -> None:
    class Holds(OneLayer):
        def __init__(self) -> None:
            super().__init__()
            self.held = [torch.zeros(4) for _ in range(9_000)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)

    outcome = train(trap(Holds), 60, probe=True, params={"rounds": 2})
    assert outcome.probed is not None
    assert outcome.probed["status"] == "abstained"
    assert "9000 tensors" in str(outcome.probed["why"])
