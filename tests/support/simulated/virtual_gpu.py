"""A job on a virtual GPU: an analytic clock of a host that launches and a device that works its queue off.

No thread, no sleep: `launch` moves the host's clock on, waits while the queue is full, and knows when the
device will be through. It implements `tuner.job_under_test.JobUnderTest`, so that the real comparison, guard
and tuning run on it. Times are nanoseconds.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from autobrrr.agent.wire import ring_layout
from autobrrr.records.tuning_records import MemoryPeaks
from autobrrr.tuner.job_under_test import STEP, Compilation, NotApplied, StepClock, Steps
from support.sessions.sidecar import job_facts

QUEUE = 1024
LATENCY_NS = 2_000.0
EVENT_NS = 1_500.0  # of the host, to record one
US, MS = 1_000.0, 1_000_000.0
CHUNK = 4096


class VirtualGpu:
    """One host thread, one in-order queue."""

    def __init__(self) -> None:
        self.now_ns = 0.0
        self.free_ns = 0.0  # when the device is through with all that is queued
        self._ends = np.zeros(QUEUE)  # of the last launches, oldest first

    def launch(self, count: int, host_ns: float, device_ns: float) -> None:
        """So many launches one after another, each with its time on host and device."""
        while count > 0:
            many = min(count, QUEUE)
            count -= many
            steps = np.arange(1, many + 1)
            # A launch is entered when the host gets there and one of the queue's places is free:
            # entered[i] = max(entered[i-1] + host, ends[i - queue]), taken apart by the running maximum.
            entered = steps * host_ns + np.maximum.accumulate(
                np.maximum(self._ends[:many] - steps * host_ns, self.now_ns)
            )
            # ends[i] = max(ends[i-1], entered[i] + latency) + device, likewise.
            ends = np.maximum.accumulate(
                np.maximum(entered + LATENCY_NS - (steps - 1) * device_ns, self.free_ns)
            )
            ends += steps * device_ns
            self.now_ns, self.free_ns = float(entered[-1]), float(ends[-1])
            self._ends = np.concatenate([self._ends[many:], ends])

    def work(self, host_ns: float) -> None:
        """The host is busy with something else."""
        self.now_ns += host_ns

    def sync(self) -> None:
        """The host waits until the device is through."""
        self.now_ns = max(self.now_ns, self.free_ns)

    def stamp(self) -> float:
        """Record an event: the moment at which the device will come to it."""
        self.launch(1, EVENT_NS, 0.0)
        return self.free_ns


@dataclass(frozen=True, kw_only=True)
class GpuStep:
    """What a step asks of host and device."""

    launches: int = 400
    host_ns: float = 4 * US  # of each launch
    kernels_ns: float = 5 * MS  # of all of them
    entries: int | None = None  # places in the queue, where it is a graph: fewer than the kernels
    graph_ns: float = 30 * US  # host time of such an entry
    item_every: int = 0  # the loss is read each so many steps
    other_ns: float = 12 * US  # host time outside launches

    def run(self, gpu: VirtualGpu, seq: int, host: float, device: float) -> None:
        """One step, its times on host and device stretched by these factors."""
        gpu.work(self.other_ns * host)
        if self.entries is None:
            gpu.launch(self.launches, self.host_ns * host, self.kernels_ns * device / self.launches)
        else:
            gpu.launch(self.entries, self.graph_ns * host, self.kernels_ns * device / self.entries)
        if self.item_every and seq % self.item_every == self.item_every - 1:
            gpu.sync()


@cache
def truth_ns(step: GpuStep, steps: int = 2000) -> float:
    """What a step takes in the long run, without noise: by the wall's clock, over a drained queue."""
    gpu = VirtualGpu()
    for seq in range(steps):
        step.run(gpu, seq, 1.0, 1.0)
    gpu.sync()
    return gpu.now_ns / steps


@dataclass
class VirtualGpuJob:
    """A training job on a virtual GPU. `clock` "host" is a job without stamps, timed as one on a CPU.

    Attributes:
        effects: What a step is with a remedy on.
        noise: Standard deviation of log(time), of host and device apart, anew for each step.
        stamped: Whether the device's clock is seen.
    """

    step: GpuStep
    effects: Mapping[str, GpuStep] = field(default_factory=dict)
    seed: int = 0
    noise: float = 0.02
    stamped: bool = True
    clock: StepClock = "device"
    switch_ns: float = 1 * MS
    cores: int | None = 16
    cancel_after_steps: int | None = None
    paused: bool = False

    def __post_init__(self) -> None:
        self.facts = job_facts(4711, threads=8, cuda=True, device="cuda")
        self.gpu = VirtualGpu()
        self._random = np.random.default_rng(self.seed)
        self._records = np.zeros(CHUNK, dtype=STEP)
        self._ends: NDArray[np.float64] = np.zeros(CHUNK)  # of steps on the device
        self._count = 0
        self._arm = 0
        self._changed = False
        self._began_ns = 0.0  # of the running step, by the host's clock
        self._stamp_ns = 0.0  # the same by the device's
        self._tokens = 0
        self.on: dict[int, str] = {}
        self.slower: float = 1.0  # set by a test: the remedies in effect turn bad by this factor

    @property
    def names_on(self) -> list[str]:
        return list(self.on.values())

    def apply(self, remedy: str, options: Mapping[str, object]) -> tuple[int, int]:
        if remedy not in self.effects:
            raise NotApplied("it does not fit this job")
        self._tokens += 1
        self.on[self._tokens] = remedy
        return self._tokens, self._switch()

    def undo(self, token: int) -> int:
        del self.on[token]
        return self._switch()

    def lost(self) -> Mapping[int, str]:
        return {}

    def prepare(self, remedy: str, options: Mapping[str, object]) -> Compilation:
        raise NotImplementedError  # nothing that compiles is tried here

    def take_peaks(self, remedies: Collection[str]) -> MemoryPeaks:
        return MemoryPeaks()

    def next_seq(self) -> int:
        return self._count

    def steps(self, first_seq: int, count: int, timeout_ns: int) -> Steps:
        deadline_ns = self.gpu.now_ns + timeout_ns
        while self._known() < first_seq + count and self.gpu.now_ns < deadline_ns and not self.cancelled():
            self._run()
        return self._records[first_seq : max(first_seq, self._known())].copy()

    def now_ns(self) -> int:
        return int(self.gpu.now_ns)

    def taken_ns(self) -> float:
        return 0.0

    def crowd(self, last_ns: int) -> str | None:
        return None

    def rest_while_paused(self) -> None:
        self.paused = False

    def cancelled(self) -> bool:
        return self.cancel_after_steps is not None and self._count >= self.cancel_after_steps

    def _known(self) -> int:
        """Steps whose records can be read: on a device, those to whose end it has come."""
        if self.clock == "host" or not self.stamped:
            return self._count
        return int(np.searchsorted(self._ends[: self._count], self.gpu.now_ns, side="right"))

    def _switch(self) -> int:
        """A command takes its time; the remedy changes at the next boundary."""
        until_ns = self.gpu.now_ns + self.switch_ns
        self._run()
        while self.gpu.now_ns < until_ns:
            self._run()
        self._arm, self._changed = self._arm + 1, True
        return self._count

    def _now(self) -> GpuStep:
        step = self.step
        for name in self.on.values():
            step = self.effects[name]
        if self.on and self.slower != 1.0:
            step = replace(step, kernels_ns=step.kernels_ns * self.slower)
        return step

    def _run(self) -> None:
        if self._count == len(self._records):
            self._records = np.concatenate([self._records, np.zeros_like(self._records)])
            self._ends = np.concatenate([self._ends, np.zeros_like(self._ends)])
        host, device = np.exp(self._random.normal(0, self.noise, 2))
        self._now().run(self.gpu, self._count, host, device)
        ended_ns = self.gpu.now_ns
        record = self._records[self._count]
        record["seq"], record["arm"] = self._count, self._arm
        record["start_ns"], record["end_ns"] = self._began_ns, ended_ns
        record["flags"] = ring_layout.SWITCHED if self._changed else 0
        self._changed = False
        self._ends[self._count] = ended_ns
        if self.stamped and self.clock == "device":
            stamp_ns = self.gpu.stamp()
            record["device_ns"] = max(1.0, stamp_ns - self._stamp_ns)
            self._ends[self._count] = self._stamp_ns = stamp_ns
        self._began_ns = self.gpu.now_ns
        self._count += 1
