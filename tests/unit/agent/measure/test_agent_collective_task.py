"""What DDP tells of a step's gradients comes one step late, and is set beside the step that it belongs to."""

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace

from autobrrr.agent.loop.task_runner import Boundary, Measuring
from autobrrr.agent.measure.collective_waits import CollectiveTask
from autobrrr.agent.phases.phase_clock import PhaseClock
from autobrrr.agent.wire import ring_layout
from support.agent import fail

US = 1_000
SAMPLED = dict.fromkeys(ring_layout.SAMPLED_FIELDS, 0)


class Parallel:
    """Tells what the backward of the step before the last forward waited: 100 us a step, counted from 1."""

    def __init__(self) -> None:
        self.forwards = 0
        self.rates: list[int] = []

    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None:
        self.rates.append(rate)

    def _get_ddp_logging_data(self) -> dict[str, object]:
        waited_ns = (self.forwards - 1) * 100 * US
        return {
            "iteration": self.forwards,
            "backward_comm_time": waited_ns + 7 * US,
            "backward_compute_comm_overlap_time": 7 * US,
        }


class Job:
    """A training loop as the task sees it: what a step's phases were, and its boundaries."""

    def __init__(self, parallel: Parallel, steps: int) -> None:
        self.told: list[dict[str, object]] = []
        self.parallel = parallel
        self.loop = SimpleNamespace(
            phases=PhaseClock(),
            hot=SimpleNamespace(owner=threading.get_ident()),
            fail=fail,
            left=[],
            train_tid=threading.get_native_id(),
            last_phases=None,
            last_sample=(),
            torch=_counting(lambda: 7 * self.ended),
        )
        self.measuring = Measuring(self.told.append, lambda: 0)
        self.measuring.begin(CollectiveTask(self.loop, steps, self.told.append))  # type: ignore[arg-type]
        self.ended = 0

    def step(
        self, *, flags: int = ring_layout.PHASES, forwards: int = 1, optimizers: Sequence[object] = ()
    ) -> int | None:
        """A step of 10 ms, 5 ms of which is its backward, has ended."""
        self.parallel.forwards += forwards
        self.ended += 1
        self.loop.last_phases = dict.fromkeys(("other", "data_wait", "forward", "optimizer"), 1_000_000)
        self.loop.last_phases["backward"] = 5_000_000
        self.loop.last_sample = tuple({**SAMPLED, "samples": 4, "garbage_ns": self.ended}.values())
        boundary = Boundary(
            job=SimpleNamespace(roots=[self.parallel], optimizers=optimizers, torch=None),  # type: ignore[arg-type]
            seq=self.ended,
            now_ns=self.ended * 10_000_000,
            last_step_ns=10_000_000,
            last_flags=flags,
        )
        return None if self.measuring.slice(boundary) else 1

    @property
    def waits(self) -> dict[str, list[int]]:
        ((event),) = self.told
        found = event["collectives"]
        assert found["status"] == "ok", found
        return found


def _counting(count: Callable[[], int]) -> SimpleNamespace:
    """The job's torch, whose default group has begun so many collectives."""
    group = SimpleNamespace(_get_sequence_number_for_group=count)
    home = SimpleNamespace(_get_default_group=lambda: group)
    there = {"is_available": lambda: True, "is_initialized": lambda: True}
    return SimpleNamespace(distributed=SimpleNamespace(distributed_c10d=home, **there))


def test_the_wait_for_gradients_is_that_of_its_own_step() -> None:
    job = Job(Parallel(), 3)
    while job.step() is not None:
        pass
    # The task began at the end of step 1, and saw DDP's clock first at that of step 2; what step N waited is
    # told at the end of step N + 1.
    assert job.waits["garbage_ns"] == [3, 4, 5]
    assert job.waits["exposed_ns"] == [300 * US, 400 * US, 500 * US]
    assert job.waits["own_by_phase_ns"]["backward"] == [4_700_000, 4_600_000, 4_500_000]  # type: ignore[call-overload]
    assert job.waits["end_ns"] == [30_000_000, 40_000_000, 50_000_000]
    assert job.waits["counts"] == [21, 28, 35]
    assert job.parallel.rates == [1, 100]


def test_backwards_after_which_gradients_are_exchanged_are_counted() -> None:
    job = Job(Parallel(), 2)
    while job.step() is not None:
        pass
    assert job.waits["reduced"] == [1, 1]
    job = Job(Parallel(), 2)
    while job.step(forwards=3) is not None:
        pass
    assert job.waits["reduced"] == [3, 3]
