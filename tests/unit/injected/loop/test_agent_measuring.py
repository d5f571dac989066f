"""What measuring takes of training is booked: slices between steps, and what steps take longer for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.loop.boundary_task import Boundary
from autobrrr.injected.loop.own_cost import cost_of
from autobrrr.injected.loop.task_runner import Measuring
from autobrrr.injected.loop.train_loop import TrainLoop
from autobrrr.injected.remedies.active_remedies import ActiveRemedies
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.wire import ring_layout
from autobrrr.injected.wire.ring_writer import StepRing


class Slices:
    """A task of two slices, each of 5 on the clock."""

    name, event, pending = "slices", "sliced", False

    def __init__(self, clock: list[int]) -> None:
        self._clock, self._left = clock, 2

    def at_boundary(self, boundary: Boundary) -> int | None:
        self._clock[0] += 5
        self._left -= 1
        return 1 if self._left else None

    def cancel(self) -> None:
        pass


def boundary(seq: int) -> Boundary:
    return Boundary(Job(torch), seq, 0, 0, 0)


def test_slices_and_what_steps_take_longer_are_booked() -> None:
    clock = [0]
    measuring = Measuring(lambda event: None, lambda: clock[0])
    measuring.usual_ns = 100
    measuring.stretched(900)  # no task is under way
    measuring.begin(Slices(clock))
    assert not measuring.slice(boundary(1))
    measuring.stretched(130)
    measuring.stretched(90)  # faster than usual is no gain
    assert measuring.slice(boundary(2))
    assert (measuring.spent_ns, measuring.stretched_ns, measuring.taken_ns) == (10, 30, 40)


@pytest.fixture
def pages() -> Iterator[StepRing]:
    made = StepRing()
    yield made
    made.close_fd()
    made.release()


def train_loop(pages: StepRing, wall: list[int], cpu: list[int]) -> TrainLoop:
    """Its clocks are the lists' only elements."""
    remedies = ActiveRemedies(REGISTRY)
    clocks = {"clock": lambda: wall[0], "cpu_clock": lambda: cpu[0]}
    return TrainLoop(torch, pages, remedies, lambda event: None, **clocks)


def test_the_cost_names_steps_that_were_traced_beside_the_slices(pages: StepRing) -> None:
    clock = [0]
    loop = train_loop(pages, clock, clock)
    loop.step_ns = 100
    loop.begin_task(Slices(clock))
    loop.hot.flags, clock[0] = ring_layout.TRACED, 1_000
    loop._close(1_000)
    assert cost_of(loop, 1, 1)["one_off_ns"] == 905


def test_what_others_take_of_the_cpu_while_the_agent_works_is_not_its_cost(
    pages: StepRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that is preempted in our hands would have been so in the job's own."""
    wall, cpu = [0], [0]
    loop = train_loop(pages, wall, cpu)

    def preempted() -> bool:
        wall[0] += 40_000_000
        cpu[0] += 20_000
        return False

    monkeypatch.setattr(loop.roots, "step_ended", preempted)
    loop._close(wall[0])
    assert cost_of(loop, None, None)["boundary_ns_per_step"] == 20_000
    assert loop.hot.own == 40_000_000


def test_applying_a_remedy_is_a_pause_and_no_part_of_the_always_on_cost(pages: StepRing) -> None:
    clock = [0]
    loop = train_loop(pages, clock, clock)

    def rehearses() -> None:
        clock[0] += 70_000

    loop.post(rehearses)
    loop._close(0)
    cost = cost_of(loop, 0, 0)
    assert cost["one_off_ns"] == 70_000
    assert cost["boundary_ns_per_step"] == 0
