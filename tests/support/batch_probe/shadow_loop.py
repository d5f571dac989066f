"""Drives a shadow probe from a global optimizer hook, as the agent does, inside the test's process."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from autobrrr.injected.batch_probe.probe_task import ShadowTask
from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.loop.boundary_task import Boundary
from autobrrr.injected.loop.job_watches import LONG_BOUNDARIES, LONG_NS, job_watches
from autobrrr.injected.loop.task_runner import Measuring
from support.jobs.digest import fingerprint


class OneLayer(torch.nn.Module):
    """What its forward does besides is up to a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(12, 4)


@dataclass
class Kind:
    """A training job: what takes part in its fingerprint, and one step of it."""

    parts: list[torch.nn.Module | torch.optim.Optimizer]
    step: Callable[[], None]
    generators: list[torch.Generator] = field(default_factory=list)
    shown: list[object] = field(default_factory=list)  # what the job lets be seen from outside
    end: Callable[[], None] = lambda: None  # after the last step


@dataclass
class Outcome:
    """What came of a run."""

    fingerprint: str
    probed: dict[str, object] | None
    activities: list[str]
    steps_of_probe: int
    longest_step_ns: int
    shown: list[object]
    so_far: list[dict[str, object]] = field(default_factory=list)  # what each replay had shown by then


def train(
    make: Callable[[], Kind],
    steps: int,
    *,
    probe: bool,
    anchor: int = -1,
    every: int | None = 1,
    params: dict[str, object] | None = None,
    cancel_at: int | None = None,
    clock: Callable[[], int] | None = None,
) -> Outcome:
    """Train a fresh job; with `probe` the task runs at its step boundaries.

    Args:
        make: Builds the job after the seed was set.
        steps: Steps to train.
        probe: Whether to probe.
        anchor: Which of the optimizers closes a step, by its place among the parts.
        every: Upper limit of steps between two slices, so that a test need not train for long.
        params: Of the task.
        cancel_at: Cancel the task at this boundary.
        clock: Of the task and of the steps; without one, time is made up and always the same.
    """
    clock = clock or Ticks(1_000)
    torch.manual_seed(7)
    kind = make()
    optimizers = [part for part in kind.parts if isinstance(part, torch.optim.Optimizer)]
    closes = optimizers[anchor]
    job = Job(torch)
    for optimizer in optimizers:
        job.saw_optimizer(optimizer)
    events: list[dict[str, object]] = []
    task = ShadowTask(
        job,
        params or {"factors": [0.25, 0.5, 1, 2], "rounds": 2},
        events.append,
        clock,
    )
    boundary = Boundaries(task, job, closes, every, events.append, cancel_at=cancel_at, clock=clock)
    handle = None
    if probe:
        optim = sys.modules["torch.optim.optimizer"]
        handle = optim.register_optimizer_step_post_hook(boundary)
    try:
        for _ in range(steps):
            kind.step()
    finally:
        if handle is not None:
            handle.remove()
        task.cancel()
        kind.end()
    probed = [event["probed"] for event in events if event["event"] == "probed"]
    return Outcome(
        fingerprint=fingerprint(*kind.parts)
        + "".join(str(hash(bytes(generator.get_state().tolist()))) for generator in kind.generators)
        + grads(kind),
        probed=probed[0] if probed else None,  # type: ignore[arg-type]
        activities=[str(event["activity"]) for event in events if event["event"] == "progress"],
        steps_of_probe=boundary.ended or boundary.seq,
        longest_step_ns=boundary.longest_ns,
        shown=kind.shown,
        so_far=[event["probing"] for event in events if event["event"] == "probing"],  # type: ignore[misc]
    )


def grads(kind: Kind) -> str:
    """The gradients as they stand, as text: a probe must not have touched them either."""
    found = []
    for part in kind.parts:
        if isinstance(part, torch.nn.Module):
            for parameter in part.parameters():
                grad = parameter.grad
                found.append("-" if grad is None else f"{grad.double().sum().item():.17g}")
    return "|".join(found)


class Ticks:
    """A clock that goes on by the same amount at each look."""

    def __init__(self, tick_ns: int) -> None:
        self._now = 0
        self._tick_ns = tick_ns

    def __call__(self) -> int:
        self._now += self._tick_ns
        return self._now


class Boundaries:
    """The post hook that stands for the agent's loop."""

    def __init__(
        self,
        task: ShadowTask,
        job: Job,
        closes: object,
        every: int | None,
        told: Callable[[dict[str, object]], None],
        *,
        cancel_at: int | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._clock = clock
        self.seq = 0
        self.ended = 0
        self.longest_ns = 0
        self._job, self._closes = job, closes
        self._every, self._cancel_at = every, cancel_at
        self._left = self._clock()
        self._flags = 0
        self._measuring = Measuring(
            told, Ticks(LONG_NS // LONG_BOUNDARIES), watches=lambda: job_watches(torch)
        )
        self._measuring.begin(task)

    def __call__(self, optimizer: object, *_: object) -> None:
        if optimizer is not self._closes:
            return
        now = self._clock()
        self.seq += 1
        self.longest_ns = max(self.longest_ns, now - self._left)
        flags, self._flags = self._flags, 0
        if self.seq == self._cancel_at:
            self._measuring.stop()
        boundary = Boundary(self._job, self.seq, now, now - self._left, flags)
        if self._measuring.slice(boundary):
            self.ended = self.seq
        elif self._every is not None:
            self._measuring.at = min(self._measuring.at, self.seq + self._every)
        self._flags = boundary.mark
        self._left = self._clock()


def live_tensors() -> int:
    """Tensors that the garbage collector knows of, without a collection first."""
    return sum(1 for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor))


def told_by_two_ranks(rank: Callable[[int, int, object], None], port: int) -> dict[int, tuple[object, ...]]:
    """What two processes, each with its rank, the port to meet at and a queue, put into that."""
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    ranks = [context.Process(target=rank, args=(each, port, results)) for each in range(2)]
    for each in ranks:
        each.start()
    try:
        return dict(results.get() for _ in ranks)
    finally:
        for each in ranks:
            each.join(60)
            each.kill()
            each.join()
