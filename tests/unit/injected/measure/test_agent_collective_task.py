"""What DDP tells of a step's gradients comes one step late, and is set beside the step that it belongs to.

On a device its events tell what steps and collectives take; they are never waited for.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from autobrrr.injected.loop.boundary_task import Boundary
from autobrrr.injected.loop.task_runner import Measuring
from autobrrr.injected.measure.collective_waits import CollectiveTask
from autobrrr.injected.phases.phase_clock import PhaseClock
from autobrrr.injected.wire import ring_layout

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
            fail=_raise,
            left=[],
            train_tid=threading.get_native_id(),
            last_phases=None,
            last_sample=(),
            torch=_counting(lambda: 7 * self.ended),
        )
        self.watched: str | None = None
        self.measuring = Measuring(self.told.append, lambda: 0, watches=lambda: self.watched)
        self.measuring.begin(CollectiveTask(self.loop, steps, self.told.append))  # type: ignore[arg-type]
        self.ended = 0

    def step(self, *, flags: int = ring_layout.PHASES, forwards: int = 1) -> int | None:
        """A step of 10 ms, 5 ms of which is its backward, has ended."""
        self.parallel.forwards += forwards
        self.ended += 1
        self.loop.last_phases = dict.fromkeys(("other", "data_wait", "forward", "optimizer"), 1_000_000)
        self.loop.last_phases["backward"] = 5_000_000
        self.loop.last_sample = tuple({**SAMPLED, "samples": 4, "garbage_ns": self.ended}.values())
        boundary = Boundary(
            job=SimpleNamespace(roots=[self.parallel], optimizers=[], torch=None),  # type: ignore[arg-type]
            seq=self.ended,
            now_ns=self.ended * 10_000_000,
            last_step_ns=10_000_000,
            last_flags=flags,
            last_optimizer_ns=None,
        )
        return None if self.measuring.slice(boundary) else 1

    @property
    def waits(self) -> dict[str, list[int]]:
        ((event),) = self.told
        found = event["collectives"]
        assert isinstance(found, dict)
        assert found["status"] == "ok", found
        return found


def _counting(count: Callable[[], int]) -> SimpleNamespace:
    """The job's torch, whose default group has begun so many collectives."""
    group = SimpleNamespace(_get_sequence_number_for_group=count)
    home = SimpleNamespace(_get_default_group=lambda: group)
    there = {"is_available": lambda: True, "is_initialized": lambda: True}
    return SimpleNamespace(distributed=SimpleNamespace(distributed_c10d=home, **there))


def _raise(error: BaseException) -> None:
    raise error


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


def test_a_step_that_does_not_count_takes_nothing_from_the_one_before_it() -> None:
    job = Job(Parallel(), 2)
    usual, other = ring_layout.PHASES, ring_layout.EVALUATION | ring_layout.PHASES
    for flags in (usual, usual, usual, other):
        job.step(flags=flags)
    while job.step() is not None:
        pass
    assert job.waits["garbage_ns"] == [3, 5]
    assert job.waits["exposed_ns"] == [300 * US, 500 * US]


def test_steps_that_the_job_watches_are_left_out_and_counted_with_no_other() -> None:
    job = Job(Parallel(), 2)
    for job.watched in (None, None, None, "its profile", "its profile"):
        job.step()
    job.watched = None
    while job.step() is not None:
        pass
    # Step 3 is told of at the end of step 4, at which it waits; step 6 was watched in part.
    assert job.waits["garbage_ns"] == [7, 8]
    assert job.waits["exposed_ns"] == [700 * US, 800 * US]
    assert job.waits["reduced"] == [1, 1]


def test_a_step_in_which_nothing_is_reduced_is_left_out() -> None:
    job = Job(Parallel(), 2)
    for forwards in (1, 1, 1, 1, 0):
        job.step(forwards=forwards)
    while job.step() is not None:
        pass
    assert job.waits["garbage_ns"] == [3, 6]
    assert job.waits["exposed_ns"] == [300 * US, 500 * US]  # the fifth of its backwards


def test_backwards_after_which_gradients_are_exchanged_are_counted() -> None:
    job = Job(Parallel(), 2)
    while job.step() is not None:
        pass
    assert job.waits["reduced"] == [1, 1]
    job = Job(Parallel(), 2)
    while job.step(forwards=3) is not None:
        pass
    assert job.waits["reduced"] == [3, 3]


class Device:
    """A device with one stream, so many steps behind its host; nobody may wait for it."""

    type = "virtual"

    def __init__(self, behind: int) -> None:
        self.behind_ms = 10.0 * behind
        self.queued_ms = 0.0  # when all that is queued will be done
        self.broken = False

    def event(self, **_: object) -> object:
        device = self

        class Event:
            at_ms = 0.0

            def record(self, stream: object) -> None:
                if device.broken:
                    raise RuntimeError("no event")
                self.at_ms = device.queued_ms

            def query(self) -> bool:
                return self.at_ms <= device.queued_ms - device.behind_ms

            def elapsed_time(self, end: Event) -> float:
                assert self.query()
                assert end.query()
                return end.at_ms - self.at_ms

        return Event()

    def synchronise(self, *_: object) -> None:
        raise AssertionError("the device was waited for")


class DeviceJob(Job):
    """Its steps take the device 10 ms, and what the loop calls holds the stream up for a part of them."""

    def __init__(self, device: Device, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(Parallel(), steps)
        self.device = device
        self.roots: list[object] = []
        self.stream = "the step's"
        accelerator = SimpleNamespace(current_stream=lambda _: self.stream, synchronize=device.synchronise)
        self.loop.torch = SimpleNamespace(Event=device.event, accelerator=accelerator)

        class ProcessGroup:
            def allreduce(self, held_ms: float) -> None:
                device.queued_ms += held_ms

        self.group = ProcessGroup()
        bindings = types.ModuleType("torch._C._distributed_c10d")
        bindings.ProcessGroup = ProcessGroup  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, bindings.__name__, bindings)

    def train(self, held_ms: float) -> int | None:
        self.device.queued_ms += 10.0 - held_ms
        self.group.allreduce(held_ms)
        self.ended += 1
        parameter = SimpleNamespace(device=self.device)
        optimizer = SimpleNamespace(param_groups=[{"params": [parameter]}])
        self.loop.last_phases = {"other": 50_000}
        self.loop.last_sample = tuple({**SAMPLED, "garbage_ns": self.ended}.values())
        boundary = Boundary(
            job=SimpleNamespace(roots=self.roots, optimizers=[optimizer], torch=None),  # type: ignore[arg-type]
            seq=self.ended,
            now_ns=self.ended * 50_000,
            last_step_ns=50_000,  # the host launches, and goes on
            last_flags=ring_layout.PHASES,
            last_optimizer_ns=None,
        )
        return None if self.measuring.slice(boundary) else 1


def test_on_a_device_steps_and_calls_last_as_long_as_its_stream_stands_at_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = DeviceJob(Device(behind=3), 4, monkeypatch)
    while job.train(held_ms=6.0 + job.ended) is not None:
        assert job.ended < 20
    assert job.waits["garbage_ns"] == [2, 3, 4, 5]
    assert job.ended == 5 + 3  # the device came to the end of the fifth with that of the eighth
    assert job.waits["step_ns"] == [10_000 * US] * 4
    assert job.waits["exposed_ns"] == job.waits["called_ns"] == [each * 1_000 * US for each in (7, 8, 9, 10)]
    assert job.waits["called_by_phase_ns"] == {"other": 8_500_000}
    assert (job.waits["end_ns"], job.waits["own_by_phase_ns"]) == ([], {})  # nothing to compare ranks by


def test_a_step_whose_events_are_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    job = DeviceJob(Device(behind=0), 3, monkeypatch)
    job.train(held_ms=1.0)
    job.train(held_ms=1.0)
    job.device.broken = True
    job.train(held_ms=1.0)
    job.device.broken = False
    while job.train(held_ms=1.0) is not None:
        assert job.ended < 20
    assert job.waits["garbage_ns"] == [2, 5, 6]  # the fourth began where the third ended


def test_a_host_that_is_many_steps_ahead_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    job = DeviceJob(Device(behind=100), 2, monkeypatch)
    while job.train(held_ms=1.0) is not None:
        assert job.ended < 100
    (event,) = job.told
    found = event["collectives"]
    assert isinstance(found, dict)
    assert (found["status"], found["why"]) == ("abstained", "the host is too many steps ahead of the device")


def elsewhere(job: DeviceJob, *, thread: bool) -> None:
    """A collective in a stream, or on a thread, of its own."""
    if thread:
        hook = threading.Thread(target=job.group.allreduce, args=(1.0,))
        hook.start()
        hook.join()
    else:
        job.stream = "another"
        job.group.allreduce(1.0)
        job.stream = "the step's"


@pytest.mark.parametrize("thread", [False, True], ids=["stream", "thread"])
def test_nothing_is_said_where_collectives_run_beside_the_step(
    thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = DeviceJob(Device(behind=0), 2, monkeypatch)
    while job.train(held_ms=1.0) is not None:
        elsewhere(job, thread=thread)
        assert job.ended < 20
    (event,) = job.told
    found = event["collectives"]
    assert isinstance(found, dict)
    assert found["why"] == "its collectives run in other streams or threads than the step"


def test_the_clock_of_ddp_would_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    job = DeviceJob(Device(behind=0), 2, monkeypatch)
    job.roots.append(job.parallel)
    assert job.train(held_ms=1.0) is None
    (event,) = job.told
    assert event["collectives"] == {
        "status": "abstained",
        "why": "the clock of DistributedDataParallel waits for virtual",
    }
    assert job.parallel.rates == []
