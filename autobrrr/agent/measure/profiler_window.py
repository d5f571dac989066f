"""A profiler window: a few real steps under torch.profiler, without stacks.

In: step boundaries. Out: the event `window` with the trace's open file. The profiler is switched
on and off on the training thread; the trace is written by the agent's. torch's own parsing of the
events, which takes most of the usual stall, is left out. Where the job profiles itself, before or
meanwhile, the window gives way and says so. On a CUDA device torch lets go of CUPTI at the end: what is left
of it would make every later launch slower. What steps take afterwards tells whether it does.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType
from typing import cast

from ..live_torch.graph_capture import capturing
from ..live_torch.job_signals import ANY
from ..live_torch.torch_log import PROFILER, quiet
from ..live_torch.torch_types import Abstain
from ..loop.task_runner import Boundary, abstained
from ..loop.train_loop import Emit, TrainLoop
from ..phases.sampled_step import cuda_in_use
from ..wire import ring_layout
from ..wire.kernel_texts import whole_number
from .cpu_profiler import StepWatch

MOST_BYTES = 256 << 20
SLOW_STEP_NS = 2_000_000_000  # from here on one step is enough
MOST_WAITED = 20
# Steps get fewer where they have many operators: writing each of them holds the interpreter for about 36 us,
# and that is to stay below 100 ms. Of operators those are counted that autograd sees, or that take memory.
MOST_OPERATORS = 2800  # in the window, the step that settles included
MOST_AT_ALL = 20 * MOST_OPERATORS  # training would stand still for two seconds
OPERATORS_A_CALL, OPERATORS_AN_ALLOCATION = 6, 2
# Who else uses CUPTI, which serves one profiler at a time.
VARIABLES = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
_BY_LIBRARY = {
    "libToolsInjection": "Nsight Systems",
    "libcuda-injection": "Nsight Compute",
    "libcuinj64": "CUDA's libcuinj64",
}
TEARDOWN = "TEARDOWN_CUPTI"  # read by torch when the profiler is switched off
TEARDOWN_FROM = (12, 6)  # CUDA before it can't start CUPTI a second time beside graphs
UNUSABLE = ring_layout.SKIPPED | ring_layout.EVALUATION | ring_layout.SWITCHED
GAVE_WAY = "your script started a profiler or a process during the window"


class WindowTask:
    """Some plain steps for comparison, then one to settle and `steps` under the profiler.

    Args:
        shapes: Record the operators' shapes too: work against the roofs, at twice the inflation.
    """

    name, event, resumable = "profiler window", "window", False

    def __init__(self, loop: TrainLoop, steps: int, shapes: bool, emit: Emit) -> None:
        self._loop = loop
        self._profiler: ModuleType = sys.modules["torch.autograd.profiler"]
        self._autograd: ModuleType = sys.modules["torch.autograd"]
        self._steps, self._shapes, self._emit = steps, shapes, emit
        self._plain_ns: list[int] = []
        self._profiled_ns: list[int] = []
        self._waited = 0
        self._stall_ns = 0
        self._watch = StepWatch()
        self._begun = False  # the profiler was switched on
        self._ended: str | None = None  # why the window is over before its time
        self._counts: list[int] = []  # autograd's and the allocator's, at the last boundary
        self._lets_go = lets_go(loop.torch)

    @property
    def pending(self) -> bool:
        """The profiler is still on: only the training thread can switch it off."""
        return self._watch.on

    def at_boundary(self, boundary: Boundary) -> bool:
        """One step further."""
        if capturing(self._loop.torch):
            # Nothing may wait for the device now, and what is captured does not run.
            if self._watch.on:
                self._ended = "the job captured a CUDA graph in it"
            self._waited += 1
            return True
        if self._ended is not None:
            raise Abstain(self._ended)
        if not self._begun:
            self._waited += 1
            if boundary.last_step_ns > SLOW_STEP_NS:
                self._steps = 1
            self._count_calls()
            if boundary.last_flags in (0, ring_layout.PHASES):
                self._plain_ns.append(boundary.last_step_ns)
            elif self._waited > MOST_WAITED * self._steps:
                raise Abstain("no ordinary steps: all had an evaluation, a skipped update or a change")
            if len(self._plain_ns) >= self._steps:
                self._switch_on(boundary)
            return True
        if not self._watch.on:
            raise Abstain(GAVE_WAY)
        if boundary.last_flags & UNUSABLE:
            raise Abstain("an evaluation, a skipped update or a change fell into it")
        self._profiled_ns.append(boundary.last_step_ns)
        boundary.mark |= ring_layout.TRACED
        if len(self._profiled_ns) <= self._steps:
            boundary.sample = True
            return True
        self._finish()
        return False

    def cancel(self) -> None:
        """Switch the profiler off; it stays on until the next boundary if this is another thread."""
        if not capturing(self._loop.torch):
            with ANY:
                self._watch.end()

    def _count_calls(self) -> None:
        """Fewer steps, where the last one had many operators."""
        before, self._counts = self._counts, [self._autograd._get_sequence_nr(), self._allocations()]
        if not before:
            return
        calls, allocations = (now - then for now, then in zip(self._counts, before, strict=True))
        operators = max(calls * OPERATORS_A_CALL, allocations * OPERATORS_AN_ALLOCATION)
        if operators * 2 > MOST_AT_ALL:
            raise Abstain(f"profiling a step of some {operators:,} operators would pause training too long")
        if operators * (self._steps + 1) > MOST_OPERATORS:
            self._steps = max(1, min(self._steps, MOST_OPERATORS // operators - 1))

    def _allocations(self) -> int:
        """Blocks that torch's allocator has given out so far on the current device; 0 without one."""
        torch = self._loop.torch
        if not cuda_in_use():
            return 0
        return int(torch._C._cuda_memoryStats(torch.cuda.current_device())["allocation"]["all"]["allocated"])

    def _switch_on(self, boundary: Boundary) -> None:
        began = perf_counter_ns()
        scheduled = self._profiler.KinetoStepTracker._step_dict.get("ProfilerStep") is not None
        if self._autograd._profiler_enabled() or scheduled:  # one with a schedule may begin at any step
            raise Abstain("the job is being profiled already")
        self._begun = True
        self._watch.begin(self._start)
        boundary.mark |= ring_layout.TRACED
        boundary.sample = True  # its hooks are the door at which a window that is cut off ends
        self._stall_ns += perf_counter_ns() - began

    def _start(self) -> Callable[[], object | None]:
        device = {"use_device": "cuda"} if cuda_in_use() else {}
        profile = self._profiler.profile(use_kineto=True, use_cpu=True, record_shapes=self._shapes, **device)
        profile._prepare_trace()  # torch's first one sets the log level anew
        with quiet(self._loop.torch, PROFILER):
            profile._start_trace()
        return self._stop

    def _stop(self) -> object | None:
        """The result; None where the profiler is off. To disable one that is off crashes."""
        if not self._autograd._profiler_enabled():
            return None
        if cuda_in_use() and not capturing(self._loop.torch):
            self._loop.torch.cuda.synchronize()
        with self._teardown(), quiet(self._loop.torch, PROFILER):
            result: object = self._profiler._disable_profiler()
        stopped = getattr(self._profiler, "_run_on_profiler_stop", None)
        if stopped is not None:
            stopped()
        return result

    @contextlib.contextmanager
    def _teardown(self) -> Iterator[None]:
        """Have torch finalise CUPTI when the profiler is switched off, unless the job's own is next.

        torch finalises it in a later call into CUDA: the job's profile would lose its kernels.
        """
        if not self._lets_go or self._watch.for_kernels or TEARDOWN in os.environ:
            yield
            return
        os.environ[TEARDOWN] = "1"
        try:
            yield
        finally:
            os.environ.pop(TEARDOWN, None)

    def _finish(self) -> None:
        began = perf_counter_ns()
        result: object | None = self._watch.end()
        self._stall_ns += perf_counter_ns() - began
        if result is None:
            raise Abstain(GAVE_WAY)
        made = sys.modules.get("torch._inductor.metrics")
        told = {
            "status": "ok",
            "plain_step_ns": self._plain_ns[-self._steps :],
            "profiled_step_ns": self._profiled_ns[1:],
            "stall_ns": self._stall_ns,
            "shapes": self._shapes,
            "graph_kernels": getattr(made, "generated_kernel_count", None),
            "device": cuda_in_use(),
            "cupti": "attached" if self._lets_go is False else None,
        }
        self._emit({"finish": lambda: _written(result, told)})  # writing is the agent's thread's work


def lets_go(torch: ModuleType) -> bool | None:
    """Whether CUPTI leaves the job at the end of a window; None where a window brings none."""
    version, own = getattr(torch.version, "cuda", None), os.environ.get(TEARDOWN)
    if version is None or not cuda_in_use():
        return None
    numbers = tuple(part for part in map(whole_number, version.split(".")[:2]) if part is not None)
    return numbers >= TEARDOWN_FROM if own is None else own == "1"


def cupti_user(environ: Mapping[str, str], maps: str) -> str | None:
    """Who uses CUPTI in a process of these variables and maps, or None."""
    names = [f"{name} is in the process" for library, name in _BY_LIBRARY.items() if library in maps]
    names += [f"{each} is set" for each in VARIABLES if environ.get(each)]
    return names[0] if names else None


def why_no_window(torch: ModuleType, *, asked: bool) -> str | None:
    """Why a window would be in somebody's way, or stay in the job though nobody has asked for one."""
    leaves = lets_go(torch)
    if leaves is None:
        return None
    user = cupti_user(os.environ, Path("/proc/self/maps").read_text(errors="replace"))
    if user is not None:
        return f"{user}, and CUPTI serves one profiler at a time"
    if asked or leaves:
        return None
    return (
        f"CUDA {torch.version.cuda} keeps CUPTI in the job, which slows launches down for good: "
        "--window profiles all the same"
    )


def _written(result: object, told: dict[str, object]) -> tuple[dict[str, object], int | None]:
    """The event with the trace's descriptor; the file itself has no name any more."""
    began = perf_counter_ns()
    folder = Path(tempfile.mkdtemp(prefix="autobrrr-window-"))
    path = folder / "trace.json"
    try:
        result.save(str(path))  # type: ignore[attr-defined]
        if not 0 < path.stat().st_size <= MOST_BYTES:
            return abstained("window", f"its trace has {path.stat().st_size} bytes"), None
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, RuntimeError) as error:
        return abstained("window", f"its trace can't be written: {error}"), None
    finally:
        with contextlib.suppress(OSError):  # unlike `rmtree` these take no descriptor
            for each in (path, folder / f"{path.name}.tmp"):  # torch writes there first
                each.unlink(missing_ok=True)
            folder.rmdir()
    wrote = perf_counter_ns() - began
    # torch holds the interpreter while it writes: the training thread stands still too.
    stall = cast(int, told["stall_ns"]) + wrote
    return {"event": "window", "fd": True, "window": {**told, "stall_ns": stall, "write_ns": wrote}}, fd
