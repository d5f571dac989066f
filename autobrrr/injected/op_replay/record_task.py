"""Records one real step: its operators, the tensors between them, and what each took in the job.

In: step boundaries. Out: the event `recorded` with an open file, from which `replay` tells what other batch
sizes would take. Torch's ExecutionTraceObserver writes the record, its CPU profiler the times. Unlike a
dispatch mode neither changes which kernels run, and both are fit for hooks, autocast, checkpoints and DDP.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from _thread import get_ident
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from ..job_state.operator_log import before_enabling
from ..live_torch import available_memory
from ..live_torch.dispatch_modes import foreign_mode, unseen
from ..live_torch.parameter_device import parameter_device
from ..live_torch.patches import Patch, first, patched, take_off_all
from ..live_torch.torch_types import Abstain, Tensor
from ..loop.boundary_task import Boundary
from ..loop.train_loop import TrainLoop
from ..measure.traced_steps import run_delay_ns
from ..wire import ring_layout
from .step_record import LOADING, STATE, WEIGHTS, Times

PLAIN_STEPS = 4
TIMED_STEPS = 3
DROPPED = 1  # timed steps in which the profiler does much for the first time
MOST_TRIES = 40
NODE_NS = 25_000  # what the observer takes for an operator or a range, about
MOST_RECORDING_NS = 250_000_000
HELD_NS = 300_000  # so long no operator begins or ends: Python has something else to do
MOST_BYTES = 64 << 20
UNUSABLE = ring_layout.UNREPRESENTATIVE & ~ring_layout.TRACED
_SAMPLES = 7  # among the fields of a sampled step
_ROOT = Path("/")
Emit = Callable[[dict[str, object]], None]


class RecordTask:
    """Some plain steps, some that are timed, then one that is recorded.

    Args:
        sweep: To be replayed at many sizes of the batch.
    """

    name, event, resumable = "step record", "recorded", False

    def __init__(self, loop: TrainLoop, sweep: bool, emit: Emit) -> None:
        self._loop, self._sweep, self._emit = loop, sweep, emit
        self._torch: ModuleType = loop.torch
        self._plain_ns: list[int] = []
        self._timed: list[tuple[int, list[list[Any]]]] = []  # a step's nanoseconds, and its events
        self._record: int | None = None  # a file without a name: who is killed leaves none behind
        self._on: Callable[[], list[list[Any]] | None] | None = None  # ends what is on
        self._kind = ""
        self._tries = self._delay_ns = 0
        self._witnesses: list[Patch] = []

    @property
    def pending(self) -> bool:
        """Something is on that only the training thread can switch off."""
        return self._on is not None

    def at_boundary(self, boundary: Boundary) -> int | None:
        """Ends what the last step was, begins what the next one is."""
        kind, self._kind = self._kind, ""
        found = self._end() if kind else None
        usable = not boundary.last_flags & UNUSABLE
        step_ns = int(median(self._plain_ns)) if self._plain_ns else 0
        if kind:
            if found is None:
                raise Abstain("another profiler was switched on, or a process started, in a recorded step")
            if kind == "timed" and usable:
                self._timed.append((boundary.last_step_ns, found))
            elif kind == "recorded" and usable:
                self._finish(step_ns)
                return None
        elif usable and self._tries:
            delay_ns = run_delay_ns(self._loop.train_tid)
            waited = max(0, delay_ns - self._delay_ns) if min(delay_ns, self._delay_ns) >= 0 else 0
            self._plain_ns.append(max(1, boundary.last_step_ns - waited))
        self._tries += 1
        if self._tries > MOST_TRIES:
            raise Abstain("too few ordinary steps: evaluations, skipped updates or changes in between")
        self._begin(boundary)
        return 1

    def cancel(self) -> None:
        """Switch everything off; what is on stays on until the next step, if this is another thread."""
        if self._on is not None and get_ident() == self._loop.hot.owner:
            self._end()
        if self._on is None:
            self._remove()

    def _begin(self, boundary: Boundary) -> None:
        self._check()
        self._delay_ns = run_delay_ns(self._loop.train_tid)
        boundary.sample = True
        if len(self._plain_ns) < PLAIN_STEPS:
            return
        usual = self._timed[DROPPED:]
        self._kind = "timed" if len(usual) < TIMED_STEPS else "recorded"
        boundary.mark |= ring_layout.TRACED
        self._witnesses = [*before_enabling(self._give_way), *patched(os, "fork", first(self._give_way))]
        if self._kind == "timed":
            self._on = _profiled(self._torch)
            return
        nodes = max(map(len, self._timed[-1][1]), default=0) // 2
        if nodes * NODE_NS > MOST_RECORDING_NS:
            raise Abstain(f"to record a step of {nodes} operators and ranges would hold training up")
        self._remove()
        self._record = os.memfd_create("autobrrr-record", os.MFD_CLOEXEC)
        self._on = _observed(self._torch, f"/proc/self/fd/{self._record}", self._loop)

    def _end(self) -> list[list[Any]] | None:
        """Switch off what is on; what it saw, None where it had to give way."""
        take_off_all(self._witnesses)
        end, self._on = self._on, None
        return None if end is None else end() or []

    def _give_way(self, *_: object, **__: object) -> None:
        """A child would record for ever, and two profilers can't be on."""
        if self._on is not None and get_ident() == self._loop.hot.owner:
            self._end()

    def _check(self) -> None:
        loop = self._loop
        if loop.check.compiled(loop.job.roots):
            raise Abstain("the job runs compiled code")
        if loop.roots.scripted:
            raise Abstain("the job runs TorchScript modules")
        device = parameter_device(loop.job)
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

    def _finish(self, step_ns: int) -> None:
        fields = self._loop.last_sample
        samples = fields[_SAMPLES] if fields else -1
        told = {
            "batch": samples if samples > 0 else None,
            "threads": self._torch.get_num_threads(),
            "sweep": "batch" if self._sweep else None,
            "step_ns": step_ns,
            "free_bytes": available_memory.free_bytes(self._torch, _ROOT),
            "paths": [os.path.dirname(os.path.dirname(str(self._torch.__file__))), *_packages()],
        }
        record, timed, self._record = self._record, self._timed[DROPPED:], None
        self._timed = []
        self._emit({"finish": lambda: _sent(record, timed, told)})

    def _remove(self) -> None:
        record, self._record = self._record, None
        if record is not None:
            os.close(record)


def _profiled(torch: ModuleType) -> Callable[[], list[list[Any]]]:
    """Switch torch's CPU profiler on; what switches it off and gives its events, by thread."""
    autograd, inside = torch.autograd, torch._C._autograd
    plain = torch._C._profiler._ExperimentalConfig()
    inside._enable_profiler_legacy(
        autograd.ProfilerConfig(autograd.ProfilerState.CPU, False, False, False, False, False, plain)
    )
    return lambda: inside._disable_profiler_legacy() if autograd._profiler_enabled() else []


def _read(threads: list[list[Any]], step_ns: int) -> tuple[Times, int]:
    """Names and durations of the busiest thread; nanoseconds of Python at length between operators."""
    times: Times = []
    held_ns, started, before = 0, None, None
    begun: list[tuple[int, Any]] = []
    for event in max(threads, key=len, default=[]):
        kind = event.kind()
        if kind == "mark" or (started is None and kind != "push"):
            continue  # the profiler's own, or what began before the step: our own work lies between
        started = started or event
        outside = not any(times[at][0].startswith((LOADING, "aten::")) for at, _ in begun)
        if before is not None and outside:
            gap_ns = int(1000 * before.cpu_elapsed_us(event))
            held_ns += gap_ns if gap_ns >= HELD_NS else 0
        before = event
        if kind == "push":
            begun.append((len(times), event))
            times.append((event.name(), 0))
        elif kind == "pop" and begun:
            at, start = begun.pop()
            times[at] = (times[at][0], int(1000 * start.cpu_elapsed_us(event)))
    if (
        started is not None
    ):  # the step's time begins behind our work, so what is left lies before its operators
        first_ns = step_ns - int(1000 * started.cpu_elapsed_us(before))
        held_ns += first_ns if first_ns >= HELD_NS else 0
    return times, held_ns


def _observed(torch: ModuleType, path: str, loop: TrainLoop) -> Callable[[], None]:
    """Switch the observer on and have it see what belongs to the model and the optimizers; what ends it."""
    inside = torch._C._profiler
    with _quiet(torch):
        if not inside._add_execution_trace_observer(path):
            raise Abstain("the job records an execution trace of its own")
        inside._enable_execution_trace_observer()

    def end() -> None:
        with _quiet(torch):
            inside._disable_execution_trace_observer()
            inside._remove_execution_trace_observer()

    try:
        marked = torch.autograd.profiler.record_function
        with torch.no_grad(), unseen():
            for name, tensors in ((WEIGHTS, _weights(loop)), (STATE, _state(torch, loop))):
                with marked(name):
                    for tensor in tensors:
                        tensor.detach()
    except BaseException:
        end()
        raise
    return end


def _weights(loop: TrainLoop) -> list[Tensor]:
    found = [*loop.job.updated, *(each for root in loop.job.roots for each in root.parameters())]  # type: ignore[attr-defined]
    return list({id(each): each for each in found}.values())


def _state(torch: ModuleType, loop: TrainLoop) -> list[Tensor]:
    found = [each for root in loop.job.roots for each in root.buffers()]  # type: ignore[attr-defined]
    for optimizer in loop.job.optimizers:
        for state in getattr(optimizer, "state", {}).values():
            if isinstance(state, dict):
                found += [each for each in state.values() if isinstance(each, torch.Tensor)]
    found += [each.grad for each in _weights(loop) if each.grad is not None]
    return list({id(each): each for each in found}.values())


def _packages() -> list[str]:
    """Where installed packages lie; never the script's own folder, whose modules would run once more."""
    return [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]


def _sent(
    record: int | None, timed: list[tuple[int, list[list[Any]]]], told: dict[str, object]
) -> tuple[dict[str, object], int | None]:
    """The event with the file's descriptor."""
    if record is None:
        return _abstained("no step was recorded"), None
    told["timed"] = [(step_ns, *_read(threads, step_ns)) for step_ns, threads in timed]
    try:
        with open(record, "r+b", closefd=False) as file:
            trace = file.read(MOST_BYTES + 1)
            if len(trace) <= MOST_BYTES:
                file.seek(0)
                file.write(json.dumps(told).encode()[:-1] + b', "trace": ' + trace + b"}")
                file.flush()
                return {"event": "recorded", "fd": True, "recorded": {"status": "ok"}}, record
        why = f"its record has more than {MOST_BYTES >> 20} MiB"
    except OSError as error:
        why = f"its record can't be written: {error}"
    os.close(record)
    return _abstained(why), None


def _abstained(why: str) -> dict[str, object]:
    return {"event": "recorded", "recorded": {"status": "abstained", "why": why}}


@contextlib.contextmanager
def _quiet(torch: ModuleType) -> Iterator[None]:
    """Torch says on standard error that the observer begins and ends, unless its log level is higher."""
    library = os.path.join(os.path.dirname(str(torch.__file__)), "lib", "libc10.so")
    try:
        loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        level = ctypes.c_int.in_dll(loaded, "FLAGS_caffe2_log_level")
    except (OSError, ValueError):
        yield
        return
    before, level.value = level.value, 3
    try:
        yield
    finally:
        level.value = before
