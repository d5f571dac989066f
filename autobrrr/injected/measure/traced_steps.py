"""Traced steps: a timing dispatch mode around some real steps, plain ones between them; then one more,
in which each operator's work (operations, bytes) is read from its shapes; then the dearest products alone.

In: step boundaries. Out: the event `traced` (`records.TracedSteps`): what the kernels did, by
phase and by operator, and how long the same steps take untraced. The mode only times: it calls
every operator exactly as it came. It is entered and left at the same place of the program, and
where it can't be left it lets everything through until it can. On a busy machine steps are taken until
enough of them ran undisturbed, by the scheduler's clock, and only these count.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType
from typing import cast

from ..job_state.operator_log import before_enabling
from ..live_torch import available_memory
from ..live_torch.compiled_code import before_compiling
from ..live_torch.dispatch_modes import foreign_mode, leave
from ..live_torch.live_job import Job
from ..live_torch.parameter_device import parameter_device
from ..live_torch.patches import Patch, take_off_all
from ..live_torch.torch_types import Abstain
from ..loop.boundary_task import Boundary
from ..loop.train_loop import TrainLoop
from ..wire import ring_layout
from . import dispatch_timer
from .calls_alone import CallsAlone
from .cpu_contention import ForeignLoad
from .mode_sensitive import SensitiveCalls
from .op_floors import FloorMeter

_ROOT = Path("/")
SLOW_STEP_NS = 50_000_000  # from here on a plain step's phase hooks weigh nothing
LONG_STEP_NS = 200_000_000  # from here on neither does what the mode does for the first time
PAUSE_NS = 3_000_000  # of calibration, after which the next step comes first
COUNT_TRIES = 3
COUNT_STEPS = 8  # at most, over which reading the shapes is spread
MOST_TRIES = 4  # as many times the steps asked for, then it abstains
MOST_MORE = 6  # as many times the steps asked for, where they vary,
MORE_NS = 4_000_000_000  # ... within this time,
MORE_OPERATORS = 40_000  # ... and with no more operators than can be added up in a few milliseconds
QUIET_STEP = 0.05  # of a step, at most, that the thread waited for a CPU in it
UNUSABLE = ring_layout.UNREPRESENTATIVE & ~ring_layout.TRACED


class TraceTask:
    """Steps in turn: traced, plain with phases, plain without (the last only where steps are short)."""

    name, event, resumable = "traced steps", "traced", True

    def __init__(self, loop: TrainLoop, steps: int, emit: Callable[[dict[str, object]], None]) -> None:
        self._loop = loop
        self._torch: ModuleType = loop.torch
        self._steps = steps
        self._emit = emit
        self._mode: dispatch_timer.TimingMode | None = None
        self._stuck: dispatch_timer.TimingMode | None = None
        self._witnesses: list[Patch] = []  # of the job's own profiler, and of what it compiles
        self._kind = ""
        self._turn = 0
        self._tries = 0
        self._count_tries = 0
        self._results = dispatch_timer.Results()
        self._quiet = dispatch_timer.Results()  # of these, the steps that nobody disturbed
        self._quiet_ns = self._quiet_delay_ns = self._step_delay_ns = 0
        self._meter: FloorMeter | None = None
        self._sensitive = SensitiveCalls(loop.torch)
        self._alone = CallsAlone(loop.torch)
        self._traced: dict[str, object] | None = None  # all but what products take alone
        self._told = False  # the times, in which long steps are not waited for any longer
        self._delay_ns = 0
        self._began_ns = 0
        self._foreign: ForeignLoad | None = None

    @property
    def pending(self) -> bool:
        """A mode that lets everything through is still on the training thread's stack, or the log is on."""
        return self._stuck is not None or self._sensitive.on

    def at_boundary(self, boundary: Boundary) -> int | None:
        """Ends what the last step was, begins what the next one is."""
        if self._traced is not None:
            return self._run_alone(boundary)
        if self._kind:
            self._end_step(boundary)
        elif not self._prepared(boundary):
            return 1
        else:
            self._results.dropped = self._quiet.dropped = int(boundary.last_step_ns < LONG_STEP_NS)
            self._began_ns = perf_counter_ns()
            self._delay_ns = run_delay_ns(self._loop.train_tid)
            if self._torch.get_num_threads() > len(os.sched_getaffinity(0)):
                self._foreign = ForeignLoad()
        done = self._complete(self._results)
        self._tries += 1
        if done and self._worth_more():
            self._begin_step(boundary, last=False)
            return 1
        if done and self._counted:
            self.cancel()
            self._traced = self._found()
            return self._run_alone(boundary)
        if not done and self._tries > MOST_TRIES * 3 * self._wanted:
            raise Abstain("too few ordinary steps: evaluations, skipped updates or changes in between")
        if done and not self._told and boundary.last_step_ns > SLOW_STEP_NS:
            self._told = True
            self._emit({"event": "tracing", "tracing": self._found()})  # shapes take some steps more
        self._begin_step(boundary, last=done)
        return 1

    def cancel(self) -> None:
        """Take the mode off; where that is not possible from here, let everything through until it is."""
        self._sensitive.end_step()
        take_off_all(self._witnesses)
        mode, self._mode = self._mode or self._stuck, None
        self._stuck = None
        if mode is not None:
            mode.over = True
            if not leave(self._torch, mode):
                self._stuck = mode
        self._loop.hooks.overdue = None

    @property
    def _wanted(self) -> int:
        return self._steps + self._results.dropped

    @property
    def _counted(self) -> bool:
        """The shapes of a step are read, or can't be."""
        if self._results.counted is None:
            return self._count_tries >= COUNT_TRIES
        return not self._results.read_on or self._count_tries >= COUNT_STEPS

    def _complete(self, results: dispatch_timer.Results) -> bool:
        return len(results.traced) >= self._wanted and results.has_plain

    def _worth_more(self) -> bool:
        """More steps would make what they show surer: these vary, or others disturbed some of them."""
        results, quiet = self._results, self._quiet
        sure = quiet.steady if self._complete(quiet) else results.steady and not quiet.traced
        return (
            results.counted is None
            and not sure
            and len(results.traced) < MOST_MORE * self._wanted
            and self._tries < 3 * MOST_MORE * self._wanted
            and results.operators < MORE_OPERATORS
            and perf_counter_ns() - self._began_ns < MORE_NS
        )

    def _prepared(self, boundary: Boundary) -> bool:
        """Learn what the job calls, and measure operators on 8 elements; whether both are done."""
        self._loop.hooks.overdue = None
        self._sensitive.end_step()
        self._sensitive.check()
        self._check(boundary.job)
        boundary.mark |= ring_layout.SETTLING
        calibrated = self._calibrated(boundary)
        learnt = self._sensitive.enough(long=boundary.last_step_ns > LONG_STEP_NS)
        if not learnt:
            self._sensitive.begin_step()
            boundary.sample = True  # its hooks are the door at which it is cut off
        return calibrated and learnt

    def _calibrated(self, boundary: Boundary) -> bool:
        """Measure operators on 8 elements, no more at one boundary than training may notice."""
        if self._meter is None:
            self._meter = dispatch_timer.floor_meter(self._torch)
            self._results.op_cost_ns = self._quiet.op_cost_ns = dispatch_timer.op_cost_ns(self._torch)
        enough_ns = perf_counter_ns() + max(PAUSE_NS, boundary.last_step_ns // 4)
        while not self._meter.slice():
            if perf_counter_ns() > enough_ns:
                return False
        self._results.floors = self._quiet.floors = self._meter.floors
        return True

    def _begin_step(self, boundary: Boundary, *, last: bool) -> None:
        kinds = (
            ("traced", "phases") if boundary.last_step_ns > SLOW_STEP_NS else ("traced", "phases", "plain")
        )
        self._kind = "counted" if last else kinds[self._turn % len(kinds)]
        self._turn += 1
        self._count_tries += last
        self._step_delay_ns = run_delay_ns(self._loop.train_tid)
        boundary.sample = self._kind != "plain"
        if self._kind in ("traced", "counted"):
            self._check(boundary.job)
            boundary.mark |= ring_layout.TRACED
            self._mode = dispatch_timer.enter(self._torch, self._loop.phases)
            self._witnesses += before_enabling(lambda *_, **__: self._let_go())
            self._witnesses += before_compiling(self._torch, self._let_go)
            if last:
                count = dispatch_timer.counter(self._results.read_to, boundary.last_step_ns)
                self._mode.count = self._alone.noting(count)
            self._loop.hooks.overdue = self._doubted(self._mode)

    def _end_step(self, boundary: Boundary) -> None:
        kind = self._kind
        take_off_all(self._witnesses)
        mode, self._mode = self._mode, None
        if mode is not None:
            let_go, mode.over = mode.over, True  # of a step that did not end
            self._loop.hooks.overdue = None
            if not let_go and not leave(self._torch, mode):
                self._stuck = mode
                raise Abstain("another dispatch mode was entered within a step and not left")
            self._sensitive.check(mode.ops)
            if let_go:
                return
        if boundary.last_flags & UNUSABLE:
            return
        if mode is not None and mode.foreign_device is not None:
            raise Abstain(f"operators run on {mode.foreign_device}: their time is not the kernels'")
        if kind == "counted":
            if mode is not None:
                self._results.add_counted(mode)
                self._quiet.counted = self._results.counted
            return
        sampled = self._loop.last_phases if kind == "phases" else None
        between_ns = self._loop.phases.between if self._loop.phases is not None else 0
        for results in (self._results, self._quiet) if self._undisturbed(boundary) else (self._results,):
            if mode is not None:
                results.add_traced(mode, boundary.last_step_ns, between_ns)
            else:
                results.add_plain(boundary.last_step_ns, sampled)

    def _undisturbed(self, boundary: Boundary) -> bool:
        """Whether the thread hardly waited for a CPU in the step that just ended, or nobody knows.

        Where threads outnumber the CPUs it waits for its own: that is how the job runs, and no disturbance.
        """
        if self._foreign is not None:
            return False
        delay_ns = max(0, run_delay_ns(self._loop.train_tid) - self._step_delay_ns)
        if self._step_delay_ns >= 0 and delay_ns > QUIET_STEP * boundary.last_step_ns:
            return False
        self._quiet_ns += boundary.last_step_ns
        self._quiet_delay_ns += delay_ns
        return True

    def _let_go(self) -> None:
        """Leave the mode within a step, on its thread."""
        mode = self._mode
        if mode is not None and not mode.over and leave(self._torch, mode):
            mode.over = True
            self._loop.hooks.overdue = None

    def _doubted(self, mode: dispatch_timer.TimingMode) -> Callable[[], None]:
        """Let go of the mode before the gradient of an operator that is not to be computed under it."""
        looked = 0
        doubtful = False

        def look() -> None:
            nonlocal looked, doubtful
            new, looked = mode.ops[looked:], len(mode.ops)
            doubtful = doubtful or bool(self._sensitive.unexpected(new))
            if doubtful:
                self._let_go()

        return look

    def _check(self, job: Job) -> None:
        loop = self._loop
        if loop.check.compiled(job.roots):
            raise Abstain("the job runs compiled code: a profiler window is the way there")
        if loop.roots.scripted:
            raise Abstain("the job runs TorchScript modules")
        device = parameter_device(job)
        if device is not None and device.type != "cpu":
            raise Abstain(f"the parameters are on {device.type}: operators are asynchronous there")
        if self._torch.autograd._profiler_enabled():
            raise Abstain("the job is being profiled")
        mode = foreign_mode(self._torch)
        if mode is not None:
            raise Abstain(mode)
        short = available_memory.short_of_a_log(_ROOT)
        if short is not None:
            raise Abstain(short)

    def _run_alone(self, boundary: Boundary) -> int | None:
        """Run the dearest products, no more at one boundary than training may notice; then tell all."""
        boundary.mark |= ring_layout.AFTER_SHADOW
        if not self._alone.slice(self._table, max(PAUSE_NS, boundary.last_step_ns // 4)):
            return 1
        self._finish()
        return None

    @property
    def _table(self) -> list[dict[str, object]]:
        return cast("list[dict[str, object]]", (self._traced or {}).get("work", []))

    def _finish(self) -> None:
        self._alone.fill_in(self._table)
        self._emit({"event": "traced", "traced": self._traced})

    def _found(self) -> dict[str, object]:
        wall_ns = perf_counter_ns() - self._began_ns
        delay_ns = run_delay_ns(self._loop.train_tid)
        known = delay_ns >= 0 and self._delay_ns >= 0
        if known and self._complete(self._quiet):
            results, delay_ns, wall_ns = self._quiet, self._quiet_delay_ns, self._quiet_ns
        else:
            results, delay_ns = self._results, delay_ns - self._delay_ns
        traced = results.record(run_delay_share=delay_ns / wall_ns if known and wall_ns > 0 else None)
        traced["foreign_cores"] = self._foreign.cores() if self._foreign is not None else None
        return traced


def run_delay_ns(tid: int) -> int:
    """How long this thread has waited for a CPU since it began; -1: not known here."""
    try:
        return int(Path(f"/proc/self/task/{tid}/schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return -1
