"""Real steps under torch's CPU profiler, plain ones between them; then one whose operators are recorded.

In: step boundaries. Out: the event `traced` (`records.TracedSteps`): what the kernels did, by phase and by
operator, and how long the same steps take untraced. And the event `recorded`, an open file from which another
process tells the operators' work and what other batch sizes would take. On a busy machine only steps count
that ran undisturbed, by the scheduler's clock, where there are enough of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from types import ModuleType
from typing import cast

from ..live_torch import available_memory
from ..live_torch.graph_capture import capturing
from ..live_torch.live_job import Job
from ..live_torch.parameter_device import parameter_device
from ..live_torch.torch_types import Abstain
from ..loop.task_runner import PAUSE_NS, Boundary, abstained
from ..loop.train_loop import Emit, TrainLoop
from ..wire import ring_layout
from ..wire.kernel_texts import run_delay_ns
from .cpu_profiler import ProfiledStep, StepWatch, profiled, read_step
from .kernel_times import FloorMeter, KernelTimes, TakenStep
from .step_recorder import FATAL, StepRecorder

_ROOT = Path("/")
SLOW_STEP_NS = 50_000_000  # from here on a plain step's phase hooks weigh nothing
MOST_TRIES = 4  # as many times the steps asked for, then it abstains
LEAST_STEPS = 3  # the judge needs so many; no more, once training has stood still for a whole pause
MORE_PAUSE_NS, MORE_NS = 100_000_000, 4_000_000_000  # limits of extra steps where steps vary
CALL_NS, EVENT_NS = 80_000, 5_000  # a timed step takes longer: for a call that autograd counts, for an event
FLOORS_EVERY = 2  # timed steps
NODE_NS = 25_000  # what the record takes for an operator or a range, about
LOG_BYTES = 256 << 20  # that the record takes: 5 kB an operator; 110 MiB were seen of 20,000
QUIET_STEP = 0.05  # of a step, at most, that the thread waited for a CPU in it
# Timing floors leaves caches cold and threads asleep for one step: it is left out. Plain ones cost nothing.
SHORT_STEPS = ("timed", "unlike", "phases", "plain", "plain", "plain")
UNUSABLE = ring_layout.UNREPRESENTATIVE & ~ring_layout.TRACED


class TraceTask:
    """Takes steps in turn: timed, left out, plain with phases, plain without phases.

    Args:
        probe: The record is to tell other batch sizes too; `sweep`: many of them.
        device: A CUDA device, if the job is on one, and what the replay needs to know of it.
    """

    name, event, resumable = "traced steps", "traced", True

    def __init__(
        self,
        loop: TrainLoop,
        steps: int,
        emit: Emit,
        *,
        probe: bool = True,
        sweep: bool = False,
        device: Mapping[str, object] | None = None,
    ) -> None:
        self._loop, self._steps, self._emit = loop, steps, emit
        self._probe, self._sweep = probe, sweep
        self._device = device
        self.event = "recorded" if device else self.event  # what ends it
        self._torch: ModuleType = loop.torch
        self._watch = StepWatch()
        self._recorder = StepRecorder(loop, self._watch)
        self._meter: FloorMeter | None = None
        self._kind = ""
        self._turn = self._tries = 0
        self._calls: int | None = None  # that autograd has counted so far
        self._taken: list[TakenStep] = []
        self._delay_ns = self._step_delay_ns = self._began_ns = self._spent_ns = 0

    @property
    def pending(self) -> bool:
        """Something is on that only the training thread can switch off."""
        return self._watch.on

    def at_boundary(self, boundary: Boundary) -> bool:
        """Ends what the last step was, begins what the next one is."""
        kind, self._kind, self._loop.phases.traced = self._kind, "", False
        calls, self._calls = self._calls, self._torch.autograd._get_sequence_nr()
        if calls is None:
            return True  # the next step is counted
        if kind:
            found = self._watch.end()
            # A record shows no times: hooks that are being put on leave it as it is.
            unusable = UNUSABLE & ~ring_layout.SETTLING if kind == "recorded" else UNUSABLE
            usable = not boundary.last_flags & unusable
            if kind == "recorded":
                self._finish("" if usable and found else "the step that was recorded was no ordinary one")
                return False
            if usable:
                self._ended(kind, found, boundary)
        else:
            _check_price((self._calls - calls) * CALL_NS, boundary.last_step_ns, self._calls - calls)
            self._prepare(boundary)
        self._tries += 1
        every = KernelTimes(self._taken)
        paused_ns = self._loop.measuring.spent_ns - self._spent_ns
        if paused_ns > PAUSE_NS:
            self._steps = min(LEAST_STEPS, self._steps)
        done = every.enough(self._steps)
        if done and (paused_ns > MORE_PAUSE_NS or not self._worth_more(every)):
            names = [each.timed.names for each in self._taken if each.timed is not None]
            try:
                _check_price(max(map(len, names)) * NODE_NS, boundary.last_step_ns)
                if any(map(FATAL.search, set().union(*names))):
                    raise Abstain("torch can't record operators on compressed sparse tensors")
            except Abstain as why:
                self._finish(str(why))
                return False
            if boundary.last_step_ns > SLOW_STEP_NS and not self._device:
                self._emit({"event": "tracing", "tracing": self._found()})  # the record takes a step more
            self._begin("recorded", boundary)
        elif not done and self._tries > MOST_TRIES * len(SHORT_STEPS) * (self._steps + 1):
            raise Abstain("too few ordinary steps: most had an evaluation, a skipped update or a change")
        else:
            kinds = ("timed", "phases") if boundary.last_step_ns > SLOW_STEP_NS else SHORT_STEPS
            self._begin(kinds[self._turn % len(kinds)], boundary)
            self._turn += 1
        return True

    def cancel(self) -> None:
        """Switch everything off; what is on stays on until the next step, if this is another thread."""
        self._watch.end()
        if not self._watch.on:
            self._recorder.remove()
        self._loop.phases.traced = False

    @property
    def _quiet(self) -> list[TakenStep]:
        """Steps in which the thread hardly waited for a CPU, or nobody knows."""
        return [each for each in self._taken if each.delay_ns <= QUIET_STEP * each.ns]

    def _prepare(self, boundary: Boundary) -> None:
        self._check(boundary.job)
        meter = self._meter = FloorMeter(self._torch)
        meter.time()  # with it the profiler has set itself up
        self._began_ns, self._spent_ns = perf_counter_ns(), self._loop.measuring.spent_ns
        self._delay_ns = run_delay_ns(self._loop.train_tid)

    def _worth_more(self, every: KernelTimes) -> bool:
        """More steps would make what they show surer: these vary, or others disturbed some of them."""
        quiet = KernelTimes(self._quiet)
        sure = quiet.steady if quiet.enough(self._steps) else every.steady and not quiet.timed
        return not sure and perf_counter_ns() - self._began_ns < MORE_NS

    def _begin(self, kind: str, boundary: Boundary) -> None:
        self._kind = kind
        self._step_delay_ns = run_delay_ns(self._loop.train_tid)
        boundary.sample = kind not in ("plain", "unlike")
        self._loop.phases.traced = kind == "timed"
        if kind in ("timed", "recorded"):
            self._check(boundary.job)
            boundary.mark |= ring_layout.TRACED
            timed = partial(profiled, self._torch, boundary.job.iterator)
            self._watch.begin(self._recorder.start if kind == "recorded" else timed)

    def _ended(self, kind: str, found: object, boundary: Boundary) -> None:
        """Take in what an ordinary step has shown."""
        if kind == "unlike" or (kind == "timed" and found is None):
            return  # it does not count, or had to give way
        ns, loop = boundary.last_step_ns, self._loop
        step: ProfiledStep | None = None
        delay_ns = max(0, run_delay_ns(loop.train_tid) - self._step_delay_ns)
        if kind == "timed":
            (events, began_ns), phases = cast("tuple[list[object], int]", found), loop.phases
            _check_price(len(events) * EVENT_NS, ns, len(events) // 8)  # two each, and half lie within others
            step = read_step(
                self._torch, events, began_ns, step_ns=ns, moves=phases.moves, pauses=phases.pauses
            )
            if self._meter is not None and len(KernelTimes(self._taken).timed) % FLOORS_EVERY:
                self._meter.time()
        phases_ns = (loop.last_phases or {}) if kind == "phases" else None
        self._taken.append(TakenStep(ns=ns, delay_ns=delay_ns, timed=step, phases=phases_ns))

    def _check(self, job: Job) -> None:
        loop = self._loop
        if loop.check.compiled(job.roots):
            raise Abstain("the job runs compiled code: a profiler window is the way there")
        if loop.roots.scripted:
            raise Abstain("the job runs TorchScript modules")
        device = parameter_device(job)
        if capturing(self._torch):
            raise Abstain("the job captures a CUDA graph")
        if device is not None and device.type != ("cuda" if self._device else "cpu"):
            raise Abstain(f"operators are replayed on CPUs only; your model is on {device.type}")
        if self._torch.autograd._profiler_enabled():
            raise Abstain("the job is being profiled")
        free = available_memory.host_bytes(_ROOT)
        if free is not None and free < LOG_BYTES:
            raise Abstain(f"recording a step may take {LOG_BYTES >> 20} MiB; {free >> 20} MiB are free")

    def _finish(self, why: str) -> None:
        """Tell all. The record is read, and its file written, on the agent's own thread."""
        chosen = self._chosen[0]
        if not self._device:
            self._emit({"event": "traced", "traced": self._found()})
        if why:
            self._recorder.remove()
            self._emit(abstained("recorded", why))
            return
        fields = self._loop.last_sample
        samples = fields[ring_layout.SAMPLES] if fields else -1
        told = {
            "batch": samples if samples > 0 else None,
            "probe": self._probe,
            "sweep": "batch" if self._sweep else None,
            "step_ns": max(1, int(median(chosen.untraced_ns))),
            "free_bytes": available_memory.host_bytes(_ROOT),
            "device": "",
            **(self._device or {}),
        }
        self._emit(
            {"finish": self._recorder.sent(told, [(ns, step) for step, ns in chosen.timed], chosen.floors)}
        )

    @property
    def _chosen(self) -> tuple[KernelTimes, float | None]:
        """The readings that count, and the part of their time in which the thread waited for a CPU."""
        now_ns, taken = run_delay_ns(self._loop.train_tid), self._quiet
        floors = self._meter.floors if self._meter is not None else None
        known, quiet = min(now_ns, self._delay_ns) >= 0, KernelTimes(taken, floors)
        if known and quiet.enough(self._steps):
            return quiet, sum(each.delay_ns for each in taken) / max(1, sum(each.ns for each in taken))
        wall_ns = max(1, perf_counter_ns() - self._began_ns)
        return KernelTimes(self._taken, floors), (now_ns - self._delay_ns) / wall_ns if known else None

    def _found(self) -> dict[str, object]:
        readings, delay = self._chosen
        cost_ns = self._meter.op_cost_ns if self._meter is not None else None
        return readings.record(op_cost_ns=cost_ns, run_delay_share=delay)


def _check_price(price_ns: int, step_ns: int, calls: int = 0) -> None:
    """Raises Abstain where watching a step would hold training up longer than a pause may last, or a step."""
    if price_ns > max(PAUSE_NS, step_ns):
        refusal = Abstain(f"watching so many operators would pause training for about {price_ns / 1e9:.1f} s")
        # One of forward and one of backward, at least.
        refusal.known = {"operations": [2 * calls]} if calls else {}
        raise refusal
