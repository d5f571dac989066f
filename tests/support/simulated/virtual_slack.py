"""The agent's own measurement of host slack, on a job on a virtual GPU that has the parts of a step.

A step is forward, backward and optimizer, each with its launches; the host may read something of the device's
between any two of them, or wait for a loader that makes a batch every so often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.loop.device_stamps import DeviceStamps
from autobrrr.agent.loop.task_runner import Boundary, Measuring
from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.measure.host_holds import HostSlackTask
from autobrrr.records import HostSlack
from support.simulated.virtual_gpu import MS, US, VirtualGpu

LOOK_NS = 200.0  # one look at a clock
WARM_STEPS = 40


@dataclass(frozen=True, kw_only=True)
class PartedStep:
    """What a step asks of host and device; launches and kernels are shared 4 : 5 : 1 among its parts."""

    launches: int = 400
    host_ns: float = 4 * US  # of each launch
    kernels_ns: float = 5 * MS
    optimizer_share: float = 0.1
    reads: tuple[str, ...] = ()  # after which parts the host waits for the device
    batch_every_ns: float = 0.0  # a loader's workers make one
    backward: bool = True  # called through torch, where a hook can be

    def parts(self) -> tuple[tuple[str, float], ...]:
        left = 1 - self.optimizer_share
        return ("forward", 0.45 * left), ("backward", 0.55 * left), ("optimizer", self.optimizer_share)


@dataclass
class VirtualSlack:
    """Runs the task on such a job; `told` is what it said."""

    step: PartedStep
    seed: int = 0
    noise: float = 0.02
    gpu: VirtualGpu = field(default_factory=VirtualGpu)
    capturing: bool = False
    flags: Callable[[int], int] = lambda seq: 0  # that a step has beside those of the task
    told: HostSlack | None = None

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._batch_ns = 0.0
        self._task_began: int | None = None

    def run(self, most_steps: int = 400) -> HostSlack:
        cuda = SimpleNamespace(
            Event=lambda enable_timing: _Event(self.gpu),
            current_stream=lambda device: None,
            is_initialized=lambda: True,
            is_current_stream_capturing=lambda: self.capturing,
            synchronize=lambda device: self.gpu.sync(),
        )
        torch = cast(Any, SimpleNamespace(cuda=cuda))
        stamps = DeviceStamps(torch, lambda seq, took_ns, flags: None)
        stamps.device = cast(Any, SimpleNamespace(type="cuda", index=0))
        measuring = SimpleNamespace(spent_ns=0, cpu_ns=0)
        hooks = SimpleNamespace(before_backward=None)
        loop = SimpleNamespace(torch=torch, stamps=stamps, measuring=measuring, hooks=hooks, step_ns=0)
        task = HostSlackTask(cast(TrainLoop, loop), self._hear, self._clock)
        self.hooks, self.measuring, self.stamps = hooks, measuring, stamps
        runner = Measuring(self._hear, lambda: 0)
        runner.begin(task)
        stamps.settle(0)
        stamps.begin()
        flags = 0
        for seq in range(most_steps):
            began_ns = self.gpu.now_ns
            self._train(seq, sampled=bool(flags))
            stamps.mark()
            stamps.ended(seq)
            stamps.collect()
            loop.step_ns = int(self.gpu.now_ns - began_ns) or 1
            boundary = Boundary(
                cast(Job, None),
                seq + 1,
                int(self.gpu.now_ns),
                loop.step_ns,
                (flags | self.flags(seq)) if flags else self.flags(seq),
            )
            if seq >= WARM_STEPS and runner.slice(boundary):
                break
            flags = boundary.mark
            stamps.settle(seq + 1)
            stamps.begin()
            if boundary.begun is not None:
                boundary.begun()
        assert self.told is not None
        return self.told

    def _train(self, seq: int, *, sampled: bool) -> None:
        step, gpu = self.step, self.gpu
        if step.batch_every_ns:
            self._batch_ns = max(self._batch_ns + step.batch_every_ns, gpu.now_ns - 2 * step.batch_every_ns)
            gpu.now_ns = max(gpu.now_ns, self._batch_ns)
        host, device = np.exp(self._random.normal(0, self.noise, 2))
        for name, share in step.parts():
            if name == "backward" and step.backward and sampled and self.hooks.before_backward is not None:
                self.hooks.before_backward()
            count = max(1, round(step.launches * share))
            gpu.launch(count, step.host_ns * host, step.kernels_ns * share * device / count)
            if name in step.reads:
                gpu.sync()

    def _clock(self) -> int:
        self.gpu.work(LOOK_NS)
        return int(self.gpu.now_ns)

    def _hear(self, event: dict[str, object]) -> None:
        assert event["event"] == "slack"
        self.told = msgspec.convert(event["slack"], HostSlack)


class _Event:
    def __init__(self, gpu: VirtualGpu) -> None:
        self._gpu, self.at_ns = gpu, 0.0

    def record(self, stream: object) -> None:
        self.at_ns = self._gpu.stamp()

    def query(self) -> bool:
        return self.at_ns <= self._gpu.now_ns

    def elapsed_time(self, end: _Event) -> float:
        return (end.at_ns - self.at_ns) / MS
