"""The device's clock in the agent: events queued at boundaries, asked about later, never waited for."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.live_torch.parameter_device import parameter_device
from autobrrr.agent.loop.device_stamps import MOST_EVENTS, DeviceStamps
from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.wire import ring_layout
from support.agent.agent import read_ring

MS = 1_000_000


class Device:
    """A queue as a device sees it: an event passes when the device comes to it."""

    def __init__(self) -> None:
        self.type = "cuda"
        self.queued_ns = 0  # work queued so far
        self.done_ns = 0  # the device has come so far
        self.capturing = False
        self.broken = False
        self.made: list[Event] = []
        self.asked = 0
        self.streams: list[object] = []

    @property
    def torch(self) -> SimpleNamespace:
        def event(*, enable_timing: bool) -> Event:
            assert enable_timing
            return Event(self)

        cuda = SimpleNamespace(
            Event=event,
            current_stream=self.stream,
            is_initialized=lambda: True,
            is_current_stream_capturing=self.captured,
            synchronize=self.synchronize,
        )
        return SimpleNamespace(cuda=cuda)

    def stream(self, device: object) -> object:
        return "stream", device

    def synchronize(self, device: object) -> None:
        assert not self.capturing, "to wait would break the user's capture"
        assert device is self
        self.done_ns = self.queued_ns

    def captured(self) -> bool:
        return self.capturing


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.at_ns = device, -1
        device.made.append(self)

    def record(self, stream: object) -> None:
        assert not self.device.capturing, "an event would become part of the user's graph"
        if self.device.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.device.streams.append(stream)
        self.at_ns = self.device.queued_ns

    def query(self) -> bool:
        assert not self.device.capturing, "asking would break the user's capture"
        self.device.asked += 1
        return self.at_ns <= self.device.done_ns

    def elapsed_time(self, end: Event) -> float:
        assert end.query()
        assert self.query()
        return (end.at_ns - self.at_ns) / MS


class Stamped:
    """Stamps of a device, and what they wrote."""

    def __init__(self) -> None:
        self.device = Device()
        self.written: dict[int, int] = {}
        self.ahead: set[int] = set()
        self.ticks: Iterator[int] = iter(range(0, 10**9, 100))
        self.stamps = DeviceStamps(
            self.device.torch,  # type: ignore[arg-type]
            self.write,
            lambda: next(self.ticks),
        )
        self.seq = 0

    def write(self, seq: int, ns: int, flags: int) -> None:
        self.written[seq] = ns
        if flags & ring_layout.AHEAD:
            self.ahead.add(seq)

    def on(self, every: int = 1, steps: int = 1) -> None:
        self.stamps.device = self.device
        self.stamps.ask(every, steps, self.seq)
        self.begin()

    def begin(self) -> None:
        self.stamps.settle(self.seq)
        if self.stamps.active:
            self.stamps.begin()

    def step(self, ns: int, *, plain: bool = True, own_ns: int = 0) -> None:
        """Work is queued; then the boundary, by the short way or the slow one."""
        self.device.queued_ns += ns
        if plain:
            self.stamps.passed(self.seq)
            self.seq += 1
            return
        if self.stamps.active:
            self.stamps.mark()
            self.stamps.ended(self.seq)
        self.stamps.collect()
        self.seq += 1
        self.device.queued_ns += own_ns
        self.begin()


@pytest.fixture
def job() -> Stamped:
    return Stamped()


def test_work_of_ours_between_two_steps_is_in_neither(job: Stamped) -> None:
    job.on()
    job.step(5 * MS, plain=False, own_ns=40 * MS)
    job.step(6 * MS, plain=False)
    job.device.done_ns = 100 * MS
    job.step(5 * MS, plain=False)
    assert job.written == {0: 5 * MS, 1: 6 * MS, 2: 5 * MS}


def test_what_the_device_has_not_come_to_is_not_waited_for(job: Stamped) -> None:
    job.on()
    job.step(5 * MS)
    job.step(5 * MS)
    job.device.done_ns = 5 * MS
    job.step(5 * MS, plain=False)
    assert job.written == {0: 5 * MS}
    asked = job.device.asked
    job.step(5 * MS)
    assert job.device.asked == asked + 1, "the short way asks about one event"


def test_of_a_very_deep_queue_some_steps_stay_without_a_stamp_and_none_is_wrong(job: Stamped) -> None:
    job.on()
    for _ in range(MOST_EVENTS + 50):
        job.step(MS)
    job.device.done_ns = job.device.queued_ns
    job.step(MS, plain=False)
    assert len(job.device.made) == MOST_EVENTS
    assert {seq: ns for seq, ns in job.written.items() if seq < MOST_EVENTS - 1} == dict.fromkeys(
        range(MOST_EVENTS - 1), MS
    )
    assert set(job.written.values()) == {MS, 0}
    job.step(MS)
    job.device.done_ns = job.device.queued_ns + MS
    job.step(MS, plain=False)
    assert (job.written[job.seq - 2], job.written[job.seq - 1]) == (MS, MS)


def test_nothing_is_recorded_or_asked_while_the_job_captures_a_graph(job: Stamped) -> None:
    job.on()
    job.step(MS)
    job.device.done_ns = 100 * MS
    job.device.capturing = True
    job.step(MS, plain=False)
    job.step(MS, plain=False)
    assert job.written == {}
    job.device.capturing = False
    job.step(MS, plain=False)
    job.step(MS, plain=False)
    assert job.written == {0: MS, 1: 0, 2: 0, 3: 0, 4: MS}


def test_an_error_of_the_device_ends_the_stamps_and_leaves_the_agent(job: Stamped) -> None:
    job.on()
    job.step(MS)
    job.device.broken = True
    job.step(MS)
    job.step(MS, plain=False)
    assert job.stamps.fault == "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert job.written == {0: 0, 1: 0, 2: 0}
    assert not job.stamps.active


def test_a_model_that_moves_to_a_device_while_it_trains_is_stamped_from_then_on(job: Stamped) -> None:
    job.stamps.ask(1, 1, 0)
    job.step(MS, plain=False)
    job.stamps.device = job.device
    job.step(MS, plain=False)
    job.device.done_ns = 100 * MS
    job.step(MS, plain=False)
    assert job.written == {2: MS}


class Optimizer:
    def __init__(self, *devices: str) -> None:
        self.param_groups = [{"params": [torch.empty(1, device=device)]} for device in devices]


@pytest.mark.parametrize(
    ("devices", "found"),
    [(("cpu",), "cpu"), (("cpu", "meta"), "meta"), (("meta", "cpu"), "meta"), ((), None)],
)
def test_any_parameter_off_the_cpu_tells_the_device(devices: tuple[str, ...], found: str | None) -> None:
    job, optimizer = Job(torch), Optimizer(*devices)
    job.saw_optimizer(optimizer)
    device = parameter_device(job)
    assert (None if device is None else device.type) == found


def trained(loop: TrainLoop, device: Device, steps: int) -> None:
    """Real optimizer steps, each of 5 ms on the device, which is done with them at once."""
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    for _ in range(steps):
        device.queued_ns += 5 * MS
        device.done_ns = device.queued_ns + MS
        optimizer.step()


def test_the_loop_stamps_each_step_while_it_is_asked_to_and_none_after(loop: TrainLoop) -> None:
    device = Device()
    loop.stamps._torch, loop.stamps.device = device.torch, device
    trained(loop, device, 12)
    loop.post(lambda: loop.stamps.ask(1, 1, loop.hot.seq))
    trained(loop, device, 60)
    loop.post(lambda: loop.stamps.ask(1, 0, loop.hot.seq))
    trained(loop, device, 12)
    loop.hot.poke()
    trained(loop, device, 1)
    took = [step.device_ns for step in read_ring(loop._pages.memory)]
    stamped = [seq for seq, ns in enumerate(took) if ns]
    assert len(stamped) >= 55
    assert stamped == list(range(stamped[0], stamped[-1] + 1))
    assert {took[seq] for seq in stamped} == {5 * MS}
    assert took[-5:] == [0] * 5
    assert not loop.hot.stamped


def test_the_loop_leaves_no_step_waiting_for_a_stamp_when_it_goes(loop: TrainLoop) -> None:
    device = Device()
    loop.stamps._torch, loop.stamps.device = device.torch, device
    loop.post(lambda: loop.stamps.ask(1, 1, loop.hot.seq))
    trained(loop, device, 30)
    device.done_ns = 0
    loop.close_door()
    loop.take_down(keep=False, at_boundary=False)
    assert all(step.device_ns != ring_layout.AWAITED for step in read_ring(loop._pages.memory))


def test_a_drained_device_has_come_to_the_end_of_every_step(job: Stamped) -> None:
    job.on()
    job.step(5 * MS)
    job.step(7 * MS, plain=False)
    assert job.written == {}
    assert job.stamps.drain()
    assert job.written == {0: 5 * MS, 1: 7 * MS}


def test_a_host_is_ahead_at_a_step_s_end_while_the_device_is_still_in_an_earlier_one(job: Stamped) -> None:
    job.on()
    job.step(5 * MS)  # began where the device stands
    job.step(5 * MS)  # the device has done nothing of the first
    job.device.done_ns = 12 * MS
    job.step(5 * MS)  # it is in the third itself
    job.device.done_ns = 100 * MS
    job.step(5 * MS, plain=False)
    assert sorted(job.written) == [0, 1, 2, 3]
    assert job.ahead == {1}
