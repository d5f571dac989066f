"""What measuring takes of training is booked: slices between steps, and what steps take longer for it."""

from _thread import get_ident
from collections.abc import Iterator

import pytest
import torch

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.live_torch.patches import Patch, around, patched, take_off_all
from autobrrr.agent.loop.own_cost import cost_of
from autobrrr.agent.loop.step_pattern import Pattern
from autobrrr.agent.loop.task_runner import OVERRUN, PAUSE_NS, Boundary, Measuring
from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.wire import ring_layout
from autobrrr.agent.wire.ring_writer import StepRing
from support.agent.agent import read_ring


class Slices:
    """A task of two slices, each of 5 on the clock."""

    name, event, pending, resumable = "slices", "sliced", False, False

    def __init__(self, clock: list[int]) -> None:
        self._clock, self.left = clock, 2
        self.cancelled = 0

    def at_boundary(self, boundary: Boundary) -> bool:
        self._clock[0] += 5
        self.left -= 1
        return self.left > 0

    def cancel(self) -> None:
        self.cancelled += 1


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


def test_a_step_that_lasts_ten_times_its_budget_ends_what_it_is_under() -> None:
    clock, told = [0], []
    measuring = Measuring(told.append, lambda: clock[0])
    task = Slices(clock)
    measuring.usual_ns = 2 * PAUSE_NS
    measuring.begin(task)
    measuring.cut_off()  # nothing is under way yet
    traced = boundary(1)
    traced.mark = ring_layout.TRACED
    assert not measuring.slice(traced)
    clock[0] += OVERRUN * 2 * PAUSE_NS - 1
    measuring.cut_off()
    assert task.cancelled == 0
    clock[0] += 1
    measuring.cut_off()
    assert task.cancelled == 1, "the step goes on without it"
    assert measuring.slice(boundary(2))
    (event,) = told
    assert event["sliced"]["why"] == "a step under it took longer than 6 s and was cut off"


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
    loop = TrainLoop(torch, pages, remedies, lambda event: None, **clocks)
    loop.hot.hook_ns = 0
    return loop


def test_the_cost_names_steps_that_were_traced_beside_the_slices(pages: StepRing) -> None:
    clock = [0]
    loop = train_loop(pages, clock, clock)
    loop.step_ns = 100
    loop.begin_task(Slices(clock))
    loop.hot.flags, clock[0] = ring_layout.TRACED, 1_000
    loop._close(1_000)
    assert cost_of(loop)["one_off_ns"] == 905


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
    assert cost_of(loop)["ns_per_step"] == 20_000
    assert loop.hot.own == 40_000_000


def test_applying_a_remedy_is_a_pause_and_no_part_of_the_always_on_cost(pages: StepRing) -> None:
    clock = [0]
    loop = train_loop(pages, clock, clock)

    def rehearses() -> None:
        clock[0] += 70_000

    loop.post(rehearses)
    loop._close(0)
    assert cost_of(loop) == {"one_off_ns": 70_000, "ns_per_step": 0}


def test_what_a_remedy_compiles_within_a_step_is_a_pause_and_the_step_says_so(pages: StepRing) -> None:
    clock = [0]
    loop = train_loop(pages, clock, clock)
    loop._close(100_000_000)
    loop.job.held_up(12_200_000_000)
    loop._close(12_300_000_000)
    assert cost_of(loop)["one_off_ns"] == 12_200_000_000
    assert [step.flags & ring_layout.COMPILED for step in read_ring(bytes(pages.memory))] == [
        0,
        ring_layout.COMPILED,
    ]


class Witnesses:
    """A task that is told of what the job compiles, in a step in which root modules are looked for too."""

    name, event, pending, resumable = "witnesses", "witnessed", False, False

    def __init__(self, loop: TrainLoop) -> None:
        self._loop, self._on = loop, list[Patch]()

    def at_boundary(self, boundary: Boundary) -> bool:
        self.cancel()
        if self._loop.roots.searching:
            return False
        self._on += patched(torch, "compile", around(lambda *_, **__: None))
        self._loop.roots.begin(get_ident())
        return True

    def cancel(self) -> None:
        take_off_all(self._on)


@pytest.mark.parametrize("ends", [False, True])
def test_what_lies_over_something_of_ours_comes_off_before_it(ends: bool) -> None:
    was = torch.compile, torch.export.export
    pages = StepRing()
    loop = TrainLoop(torch, pages, ActiveRemedies(REGISTRY), lambda event: None)
    loop.steps.pattern = Pattern(anchor=0, cycle=1)
    loop.begin_task(Witnesses(loop))
    loop._close(0)
    assert torch.compile is not was[0]
    if ends:
        loop.take_down(keep=False, at_boundary=False)
    else:
        loop._close(1)
        loop.roots.stop()
    assert (torch.compile, torch.export.export) == was
    pages.close_fd()
    pages.release()
