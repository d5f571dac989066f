"""Two trials on one virtual GPU: one runs while the other's process stands still, but not what it has queued.

Stands in for `relaunch.trial.live_trial.LiveTrial` in the real comparison of pairs, which gets its clock and
its sleep from the machine here.
"""

from types import SimpleNamespace

import numpy as np

from autobrrr.relaunch.trial.trial_steps import TrialSteps
from autobrrr.tuner.job_under_test import STEP, StepClock
from support.simulated.virtual_gpu import GpuStep, VirtualGpu

STOP_NS = 2_000_000.0  # until all processes of a trial stand still


class Machine:
    """One device, and the trial whose processes run."""

    def __init__(self) -> None:
        self.now_ns = 0.0
        self.free_ns = 0.0  # the device's, by all that anybody has queued
        self.running: VirtualTrial | None = None

    def perf_counter_ns(self) -> int:
        return int(self.now_ns)

    def sleep(self, seconds: float) -> None:
        until_ns = self.now_ns + seconds * 1e9
        if self.running is not None:
            self.running.run(until_ns)
        self.now_ns = until_ns


class VirtualTrial:
    """A trial that trains as a step says. Without `drains` it is stopped with whatever it has queued."""

    def __init__(
        self,
        machine: Machine,
        step: GpuStep,
        *,
        clock: StepClock = "device",
        drains: bool = True,
        seed: int = 0,
    ) -> None:
        self.ending = None
        self.witnesses = SimpleNamespace(flush=lambda: None)
        self.steps = TrialSteps()
        self.steps.clock = clock
        self._machine, self._step, self._clock, self._drains = machine, step, clock, drains
        self._gpu = VirtualGpu()
        self._random = np.random.default_rng(seed)
        self._seq = 0
        self._began_ns = self._stamp_ns = 0.0
        self._awaited: list[tuple[float, np.void]] = []

    def resume(self) -> int:
        gpu, machine = self._gpu, self._machine
        gpu.now_ns, gpu.free_ns = machine.now_ns, max(gpu.free_ns, machine.free_ns)
        self._began_ns = gpu.now_ns
        if self._drains:
            self._stamp_ns = gpu.now_ns
        machine.running = self
        return machine.perf_counter_ns()

    def pause(self) -> int:
        machine, gpu = self._machine, self._gpu
        self.run(machine.now_ns + (0.0 if self._drains else STOP_NS))
        if self._drains:
            gpu.sync()
        machine.now_ns = max(machine.now_ns, gpu.now_ns)
        machine.free_ns, machine.running = gpu.free_ns, None
        self.look()
        return machine.perf_counter_ns()

    def look(self) -> None:
        """Take in the records that can be read by now."""
        ready = [record for at_ns, record in self._awaited if at_ns <= self._machine.now_ns]
        self._awaited = self._awaited[len(ready) :]
        if ready:
            self.steps.add(np.array(ready, dtype=STEP))

    def run(self, until_ns: float) -> None:
        """Train for so long; the step that is under way goes to its end."""
        gpu = self._gpu
        while gpu.now_ns < until_ns:
            host, device = np.exp(self._random.normal(0, 0.02, 2))
            self._step.run(gpu, self._seq, host, device)
            record = np.zeros(1, dtype=STEP)[0]
            record["seq"], record["start_ns"], record["end_ns"] = self._seq, self._began_ns, gpu.now_ns
            known_ns = gpu.now_ns
            if self._clock == "device":
                ended_ns = gpu.stamp()
                record["device_ns"], self._stamp_ns = max(1.0, ended_ns - self._stamp_ns), ended_ns
                known_ns = ended_ns
            self._awaited.append((known_ns, record))
            self._seq += 1
            self._began_ns = gpu.now_ns
