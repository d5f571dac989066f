"""The timing dispatch mode itself, and what is made of its readings.

In: every operator that a step dispatches. Out: its duration, its phase and its name, kept in flat
arrays (nothing that the garbage collector would count); per step the kernels' own time, which is
the duration less what the same operator takes on 8 elements (`floors`).
"""

from __future__ import annotations

import functools
from array import array
from collections import defaultdict
from collections.abc import Callable
from statistics import median, quantiles
from time import perf_counter_ns
from types import ModuleType
from typing import Protocol

from ..live_torch.dispatch_modes import leave, mode_base, unseen
from ..phases.phase_clock import NAMES, PhaseClock
from . import op_work as work
from .op_floors import FloorMeter, Floors
from .op_work_table import work_table

TOP_OPS = 40
FEWEST_PLAIN = 3
EVEN_STEPS, EVEN_KERNELS = 0.25, 0.15  # range of the middle half, over the median step
LONG_STEP_NS = 2_000_000  # from here on the phase hooks are less than half a percent
COUNTING_NS = 25_000_000  # own time in one counted step; what is left is read in the next one
COUNTING_SHARE = 0.1  # of a long step, in its place


Count = Callable[[object, tuple[object, ...], dict[str, object], object], "work.Work | None"]


class TimingMode(Protocol):
    """What the mode offers; the class itself is made from the job's own torch."""

    over: bool
    foreign_device: str | None
    ops: list[object]
    spent: array[int]
    where: bytearray
    count: Count | None
    work: list[work.Work | None]

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...


@functools.lru_cache(maxsize=1)
def _mode_class(torch: ModuleType) -> type:
    base, clock = mode_base(torch), perf_counter_ns

    class Timing(base):  # type: ignore[misc, valid-type]
        def __init__(self, phases: PhaseClock | None) -> None:
            super().__init__()
            self.over = False
            self.foreign_device: str | None = None
            self.ops: list[object] = []
            self.spent = array("q")
            self.where = bytearray()
            self.count: Count | None = None
            self.work: list[work.Work | None] = []
            self._phases = phases

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if self.over:
                return func(*args, **(kwargs or {}))
            phases = self._phases
            began = clock()
            out = func(*args, **(kwargs or {}))
            ended = clock()
            self.spent.append(ended - began)
            self.ops.append(func)
            self.where.append(phases.shown if phases is not None else 0)
            if phases is not None:
                phases.ran(began, ended)
            with unseen():
                if self.foreign_device is None:
                    kind = getattr(getattr(out, "device", None), "type", "cpu")
                    if kind not in ("cpu", "meta"):
                        self.foreign_device = kind
                if self.count is not None:
                    self.work.append(self.count(func, args, kwargs, out))
            return out

    return Timing


def enter(torch: ModuleType, phases: PhaseClock | None) -> TimingMode:
    """Enter the mode on this thread."""
    mode: TimingMode = _mode_class(torch)(phases)
    mode.__enter__()
    return mode


def counter(begin_at: int = 0, step_ns: int = 0) -> Count:
    """Reads what each operator has to do, after it ran; None where it can't, or once it took too long.

    Args:
        begin_at: Operators of the step that are left out, since an earlier step has read them.
        step_ns: Of a step: a long one has more time for it.
    """
    reader = work.OpWorkReader()
    left_ns = max(COUNTING_NS, int(COUNTING_SHARE * step_ns))
    skipped = 0

    def count(
        func: object, args: tuple[object, ...], kwargs: dict[str, object], out: object
    ) -> work.Work | None:
        nonlocal left_ns, skipped
        if skipped < begin_at:
            skipped += 1
            return None
        if left_ns <= 0:
            return None
        began = perf_counter_ns()
        try:
            found = reader.of(func, args, kwargs or {}, out)
        except Exception:  # noqa: BLE001 - in the user's step: what can't be read goes uncounted
            found = None
        left_ns -= perf_counter_ns() - began
        return found

    return count


class Results:
    """What the steps have shown so far."""

    def __init__(self) -> None:
        self.floors = Floors()
        self.dropped = 1  # traced steps at the beginning, in which the mode does much for the first time
        self.op_cost_ns: int | None = None
        self.traced: list[tuple[TimingMode, int]] = []
        self._between_ns: list[int] = []  # of the traced steps
        self.counted: TimingMode | None = None
        self.read_on = False  # one more counted step would read more shapes
        self._kernels_ns: list[int] = []  # of the traced steps
        self.plain_ns: list[int] = []
        self.sampled_ns: list[int] = []
        self.phases: list[dict[str, int]] = []

    @property
    def has_plain(self) -> bool:
        """Enough plain steps have been seen too, and their phases in some."""
        return len(self._untraced_ns) >= FEWEST_PLAIN and bool(self.phases)

    @property
    def _untraced_ns(self) -> list[int]:
        """Plain steps; with those whose phases were sampled (some us longer) where they are few, or long."""
        if len(self.plain_ns) < FEWEST_PLAIN or median(self.plain_ns) >= LONG_STEP_NS:
            return self.plain_ns + self.sampled_ns
        return self.plain_ns

    @property
    def steady(self) -> bool:
        """Steps, and the kernels in them, vary little from one to the next."""
        plain, kernels = self._untraced_ns, self._kernels_ns[self.dropped :]
        usual = median(plain)
        return _width(plain) <= EVEN_STEPS * usual and _width(kernels) <= EVEN_KERNELS * usual

    @property
    def operators(self) -> int:
        """Operators dispatched in the traced steps, all together."""
        return sum(len(mode.ops) for mode, _ in self.traced)

    def add_traced(self, mode: TimingMode, step_ns: int, between_ns: int = 0) -> None:
        """A step under the mode; in its forward no operator ran for so long, outside of the roots' calls."""
        self._between_ns.append(between_ns)
        self.traced.append((mode, step_ns))
        self._kernels_ns.append(self._kernel_ns(mode))

    def add_counted(self, mode: TimingMode) -> None:
        """A step in which shapes were read: the first of them, or the rest of the same operators."""
        before, read_to = self.counted, self.read_to
        if before is not None and before.ops == mode.ops:
            both = zip(before.work, mode.work, strict=True)
            before.work = [old if old is not None else new for old, new in both]
        elif before is None or sum(map(bool, mode.work)) > sum(map(bool, before.work)):
            self.counted = mode
        self.read_on = read_to < self.read_to < len(mode.ops)

    @property
    def read_to(self) -> int:
        """Operators, from the beginning of the step, whose shapes have been read."""
        work = self.counted.work if self.counted is not None else []
        return next((at + 1 for at in range(len(work) - 1, -1, -1) if work[at] is not None), 0)

    def add_plain(self, step_ns: int, phases: dict[str, int] | None) -> None:
        """A step between them, with its phases where they were sampled."""
        if phases is None:
            self.plain_ns.append(step_ns)
        else:
            self.sampled_ns.append(step_ns)
            self.phases.append(phases)

    def _kernel_ns(self, mode: TimingMode) -> int:
        floor = self.floors.of
        return sum(max(0, spent - floor(op)) for op, spent in zip(mode.ops, mode.spent, strict=True))

    def record(self, *, run_delay_share: float | None) -> dict[str, object]:
        """The payload of `traced`."""
        steps = self.traced[self.dropped :] or self.traced
        kernel_ns = self._kernels_ns[self.dropped :] or self._kernels_ns
        # One step in which the thread had to wait for a CPU would fill the tables below.
        usual_ns = 1.5 * median(kernel_ns)
        quiet = [mode for (mode, _), own in zip(steps, kernel_ns, strict=True) if own <= usual_ns]
        if len(quiet) < 0.8 * len(steps):  # not one, but a kind of step
            quiet = [mode for mode, _ in steps]
        by_phase: dict[str, float] = dict.fromkeys(NAMES, 0.0)
        count: dict[object, int] = defaultdict(int)
        kernel: dict[object, int] = defaultdict(int)
        calls: dict[str, int] = dict.fromkeys(NAMES, 0)
        for mode in quiet:
            for op, spent, where in zip(mode.ops, mode.spent, mode.where, strict=True):
                own = max(0, spent - self.floors.of(op))
                by_phase[NAMES[where]] += own
                calls[NAMES[where]] += 1
                count[op] += 1
                kernel[op] += own
        n = len(quiet)
        ops = sorted(count, key=lambda op: kernel[op], reverse=True)[:TOP_OPS]
        names = {name for phases in self.phases for name in phases}
        per_step = {op: spent / n for op, spent in kernel.items()}
        return {
            "status": "ok",
            "kernel_ns": kernel_ns,
            "traced_step_ns": [step_ns for _, step_ns in steps],
            "plain_step_ns": self._untraced_ns,
            "operations": [len(mode.ops) for mode, _ in steps],
            "kernel_by_phase_ns": {name: spent / n for name, spent in by_phase.items()},
            "plain_by_phase_ns": {
                name: sum(phases.get(name, 0) for phases in self.phases) / len(self.phases) for name in names
            },
            "operations_by_phase": {name: times / n for name, times in calls.items()},
            "by_op": [{"op": str(op), "count": count[op] / n, "kernel_ns": per_step[op]} for op in ops],
            "work": (
                work_table(self.counted, quiet, self.floors.of, per_step) if self.counted is not None else []
            ),
            "between_ns": median(self._between_ns[self.dropped :] or self._between_ns),
            "op_cost_ns": self.op_cost_ns,
            "run_delay_share": run_delay_share,
        }


def _width(values: list[int]) -> float:
    """The range of the middle half."""
    if len(values) < 2:
        return 0.0
    low, _, high = quantiles(values, n=4, method="inclusive")
    return high - low


def floor_meter(torch: ModuleType) -> FloorMeter:
    """Measures the floors of the common operators under the mode."""

    def timed(program: Callable[[], None]) -> list[tuple[object, int]]:
        mode = enter(torch, None)
        try:
            program()
        finally:
            mode.over = True
            leave(torch, mode)
        return list(zip(mode.ops, mode.spent, strict=True))

    return FloorMeter(torch, timed)


def op_cost_ns(torch: ModuleType) -> int | None:
    """What a tiny operator costs without the mode, forward with autograd and backward; None if inference."""
    if torch.is_inference_mode_enabled():
        return None
    with torch.enable_grad():
        weight = torch.ones(8, dtype=torch.float32, device="cpu", requires_grad=True)

        def chain() -> None:
            y = weight
            for _ in range(8):
                y = torch.relu(y * weight + weight)
            torch.autograd.grad(y.sum(), weight)

        mode = enter(torch, None)
        try:
            chain()
        finally:
            mode.over = True
            leave(torch, mode)
        best = 1 << 62
        for _ in range(4):
            began = perf_counter_ns()
            chain()
            best = min(best, perf_counter_ns() - began)
    return best // max(1, len(mode.ops))
