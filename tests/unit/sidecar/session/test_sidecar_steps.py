"""The window holds the steps that stand for how the job trains now."""

from __future__ import annotations

import pytest

from autobrrr.agent.wire import ring_layout
from autobrrr.sidecar.session.ring_reader import RingReader
from autobrrr.sidecar.session.step_window import WINDOW_STEPS, StepWindow
from support.sessions.sidecar import MS, RingWriter, StepModel


class Loop:
    """A ring and the window that is fed from it."""

    def __init__(self) -> None:
        self.writer = RingWriter(8192)
        self.reader = RingReader(self.writer.fd)
        self.window = StepWindow()

    def train(self, steps: int, step_ns: int = MS, **fields: int) -> StepWindow:
        for _ in range(steps):
            self.writer.step(step_ns, **fields)
        self.window.add(self.reader.read_new())
        return self.window


def test_statistics_are_of_the_representative_steps_alone() -> None:
    loop = Loop()
    loop.train(10, 2 * MS)
    window = loop.train(10, 90 * MS, flags=ring_layout.TRACED)
    assert (window.stats.count, window.stats.mean, window.stats.p99) == (10, 2 * MS, 2 * MS)
    assert window.seen == 20
    assert window.longest_ns == 90 * MS


def test_steps_with_an_evaluation_are_kept_apart() -> None:
    loop = Loop()
    loop.train(10, 2 * MS)
    loop.train(1, 90 * MS, flags=ring_layout.EVALUATION)
    loop.train(9, 2 * MS)
    loop.train(1, 70 * MS, flags=ring_layout.EVALUATION | ring_layout.TRACED)
    window = loop.train(1, 80 * MS, flags=ring_layout.EVALUATION | ring_layout.PHASES)
    assert (window.stats.count, window.stats.mean) == (19, 2 * MS)
    assert window.evaluated == [(10, 90 * MS), (21, 80 * MS)]
    assert loop.train(1, arm=1).evaluated == []


def test_when_a_remedy_changes_the_steps_before_it_no_longer_count() -> None:
    loop = Loop()
    loop.train(40, 4 * MS, data_wait_ns=MS)
    window = loop.train(5, 2 * MS, arm=1)
    assert (window.stats.count, window.stats.mean) == (5, 2 * MS)
    assert window.phases is None


def test_steps_older_than_half_a_minute_go_but_a_few_always_stay() -> None:
    loop = Loop()
    loop.train(100, 50 * MS)
    assert loop.window.count == 100
    loop.train(40, 1000 * MS)
    assert loop.window.count == WINDOW_STEPS
    assert loop.window.stats.median == 1000 * MS


def test_phases_are_means_of_the_sampled_steps_and_sum_to_the_step() -> None:
    loop = Loop()
    loop.train(50)
    for _ in range(8):
        loop.writer.model_step(StepModel(step_ns=2 * MS, sampled_every=1))
    loop.window.add(loop.reader.read_new())
    phases = loop.window.phases
    assert (phases.steps, phases.step_ns, phases.batch) == (8, 2 * MS, 16)
    parts = [phases.mean.data_wait, phases.mean.forward, phases.mean.backward, phases.mean.optimizer]
    assert sum(part or 0 for part in [*parts, phases.mean.other]) == pytest.approx(2 * MS, abs=5)
    assert phases.mean.host_to_device is None


def test_on_a_device_only_steps_count_that_it_has_stamped() -> None:
    loop = Loop()
    loop.window.clock = "device"
    loop.train(20, MS)
    assert (loop.window.count, loop.window.stats.count, loop.window.median_ns) == (20, 0, None)
    loop.train(8, MS, device_ns=5 * MS)
    assert (loop.window.stats.count, loop.window.median_ns) == (8, 5 * MS)


def test_a_host_that_runs_ahead_is_seen_in_the_steps_that_are_stamped() -> None:
    loop = Loop()
    loop.window.clock = "device"
    loop.train(3, MS, device_ns=5 * MS, flags=ring_layout.AHEAD)
    loop.train(1, MS, device_ns=5 * MS)
    loop.train(4, MS)
    assert loop.window.ahead.tolist() == [True, True, True, False]
