"""The device's clock with real events: what is planted is seen, and the host runs ahead as before."""

import time
from collections.abc import Iterator

import pytest
import torch

from autobrrr.agent.live_torch.parameter_device import parameter_device
from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.wire import ring_layout
from autobrrr.agent.wire.ring_writer import StepRing
from support.agent.agent import Step, read_ring

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CYCLES = 40_000_000  # of the device: some 20 ms


@pytest.fixture
def loop() -> Iterator[TrainLoop]:
    pages = StepRing()
    pages.close_fd()
    made = TrainLoop(torch, pages, ActiveRemedies({}), lambda event: None)
    made.put_on(lambda: None)
    yield made
    if not made.gone:
        made.close_door()
        made.take_down(keep=False, at_boundary=False)
    assert not made.stamps._free
    assert not made.stamps._awaited
    pages.release()


class Training:
    """Steps that keep the device busy for a while, and hardly the host."""

    def __init__(self, loop: TrainLoop, **options: object) -> None:
        self.loop = loop
        self.model = torch.nn.Linear(8, 8, device="cuda")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0, foreach=False, **options)  # type: ignore[arg-type]
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)

    def step(self, cycles: int = CYCLES) -> None:
        torch.cuda._sleep(cycles)
        self.optimizer.step()

    def stamped(self, steps: int = 20) -> list[Step]:
        """Train until the pattern is settled, then so many steps with stamps; their records."""
        for _ in range(12):
            self.step(1000)
        self.loop.stamps.device = parameter_device(self.loop.job)
        self.loop.post(lambda: self.loop.stamps.ask(1, 1, self.loop.hot.seq))
        self.step(1000)
        first = self.loop.hot.steps
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        self.loop.hot.poke()
        self.step(1000)
        torch.cuda.synchronize()
        self.loop.hot.poke()
        self.step(1000)
        found = read_ring(self.loop._pages.memory)
        return [step for step in found if first <= step.seq < first + steps]


def alone_ns(cycles: int) -> float:
    """What the device takes for it, by the host's clock around a wait: the shortest, a host may be late."""

    def once() -> int:
        torch.cuda.synchronize()
        began = time.perf_counter_ns()
        torch.cuda._sleep(cycles)
        torch.cuda.synchronize()
        return time.perf_counter_ns() - began

    return min(once() for _ in range(12))


def test_steps_take_what_the_device_takes_while_the_host_runs_ahead(loop: TrainLoop) -> None:
    truth_ns = alone_ns(CYCLES)
    found = Training(loop).stamped()
    assert len(found) == 20
    took = sorted(step.device_ns for step in found)
    assert took[10] == pytest.approx(truth_ns, rel=0.05)
    assert sum(step.duration_ns for step in found) < truth_ns * 20 / 2, "the host waited for the device"


def test_steps_in_a_stream_of_the_job_s_own_are_stamped_in_it(loop: TrainLoop) -> None:
    truth_ns = alone_ns(CYCLES)
    with torch.cuda.stream(torch.cuda.Stream()):
        found = Training(loop).stamped()
    took = sorted(step.device_ns for step in found)
    assert took[10] == pytest.approx(truth_ns, rel=0.05)


def test_a_step_that_the_job_captures_stays_captured_and_has_no_stamp(loop: TrainLoop) -> None:
    training = Training(loop)
    training.stamped(4)
    graph = torch.cuda.CUDAGraph()
    first = loop.hot.steps
    with torch.cuda.graph(graph):
        training.optimizer.step()
    graph.replay()
    torch.cuda.synchronize()
    assert loop.stamps.fault is None
    for _ in range(3):
        training.step(1000)
        torch.cuda.synchronize()
        loop.hot.poke()
    found = {step.seq: step.device_ns for step in read_ring(loop._pages.memory)}
    assert found[first] == ring_layout.UNSTAMPED


def test_a_drained_device_has_nothing_left_to_do(loop: TrainLoop) -> None:
    training = Training(loop)
    training.stamped(2)
    for _ in range(5):
        training.step()
    assert not torch.cuda.current_stream().query()
    drained: list[bool] = []
    loop.post(lambda: drained.append(loop.stamps.drain()))
    training.step()
    assert drained == [True]
    assert torch.cuda.current_stream().query()
    assert all(step.device_ns != ring_layout.AWAITED for step in read_ring(loop._pages.memory))
