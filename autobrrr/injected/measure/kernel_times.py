"""What the timed steps of a trace show: the kernels' own time, by phase and by operator, beside plain steps.

In: profiled steps, plain ones, floors. Out: the payload of `traced`.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median, quantiles

from ..phases.phase_clock import NAMES
from .cpu_profiler import ProfiledStep
from .op_floors import Floors

TOP_OPS = 40
FEWEST_PLAIN = 3
EVEN_STEPS, EVEN_KERNELS = 0.25, 0.15  # range of the middle half, over the median step
LONG_STEP_NS = 2_000_000  # from here on the phase hooks are less than half a percent


class KernelTimes:
    """What the steps have shown so far.

    Args:
        dropped: Timed steps at the beginning, in which the profiler does much for the first time.
    """

    def __init__(self, floors: Floors, dropped: int) -> None:
        self.dropped = dropped
        self._floors = floors
        self._timed: list[tuple[ProfiledStep, int, list[int]]] = []
        self.plain_ns: list[int] = []
        self.sampled_ns: list[int] = []
        self.phases: list[dict[str, int]] = []

    @property
    def timed(self) -> list[tuple[ProfiledStep, int, list[int]]]:
        """Each step under the profiler, what it took, and what the kernel of each operator did."""
        return self._timed[self.dropped :] or self._timed

    def enough(self, steps: int) -> bool:
        """So many steps were timed, plain ones have been seen too, and their phases in some."""
        timed = len(self._timed) - self.dropped
        return timed >= steps and len(self.untraced_ns) >= FEWEST_PLAIN and bool(self.phases)

    @property
    def seen(self) -> int:
        """Steps timed."""
        return len(self._timed)

    @property
    def events(self) -> int:
        """What began in the timed steps, all together."""
        return sum(len(step.names) for step, *_ in self._timed)

    @property
    def untraced_ns(self) -> list[int]:
        """Plain steps; with those whose phases were sampled (some us longer) where they are few, or long."""
        if len(self.plain_ns) < FEWEST_PLAIN or median(self.plain_ns) >= LONG_STEP_NS:
            return self.plain_ns + self.sampled_ns
        return self.plain_ns

    @property
    def steady(self) -> bool:
        """Steps, and the kernels in them, vary little from one to the next."""
        usual = median(self.untraced_ns)
        kernels = [sum(own) for *_, own in self.timed]
        return _width(self.untraced_ns) <= EVEN_STEPS * usual and _width(kernels) <= EVEN_KERNELS * usual

    def add_timed(self, step: ProfiledStep, step_ns: int) -> None:
        """A step under the profiler."""
        self._timed.append((step, step_ns, self._floors.own_ns(step)))

    def add_plain(self, step_ns: int, phases: dict[str, int] | None) -> None:
        """A step between them, with its phases where they were sampled."""
        if phases is None:
            self.plain_ns.append(step_ns)
        else:
            self.sampled_ns.append(step_ns)
            self.phases.append(phases)

    def record(self, *, op_cost_ns: int | None, run_delay_share: float | None) -> dict[str, object]:
        """The payload of `traced`."""
        kernel_ns = [sum(own) for *_, own in self.timed]
        # One step in which the thread had to wait for a CPU would fill the tables below.
        usual_ns = 1.5 * median(kernel_ns)
        quiet = [one for one, ns in zip(self.timed, kernel_ns, strict=True) if ns <= usual_ns]
        if len(quiet) < 0.8 * len(kernel_ns):  # not one, but a kind of step
            quiet = self.timed
        each = 1 / len(quiet)
        by_phase: dict[str, float] = dict.fromkeys(NAMES, 0.0)
        calls: dict[str, float] = dict.fromkeys(NAMES, 0.0)
        by_op: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for step, _, own in quiet:
            for at, ns in zip(step.operators, own, strict=True):
                phase, op = NAMES[step.where[at]], by_op[step.names[at]]
                by_phase[phase] += each * ns
                calls[phase] += each
                op[0] += each
                op[1] += each * ns
        dearest = sorted(by_op.items(), key=lambda item: -item[1][1])[:TOP_OPS]
        names = {name for phases in self.phases for name in phases}
        return {
            "status": "ok",
            "kernel_ns": kernel_ns,
            "traced_step_ns": [step_ns for _, step_ns, _ in self.timed],
            "plain_step_ns": self.untraced_ns,
            "operations": [len(own) for *_, own in self.timed],
            "kernel_by_phase_ns": by_phase,
            "plain_by_phase_ns": {
                name: sum(phases.get(name, 0) for phases in self.phases) / len(self.phases) for name in names
            },
            "operations_by_phase": calls,
            "by_op": [
                {"op": name.replace("::", "."), "count": count, "kernel_ns": ns}
                for name, (count, ns) in dearest
            ],
            "between_ns": median(step.between_ns for step, *_ in self.timed),
            "op_floor_ns": self._floors.usual_ns,
            "op_cost_ns": op_cost_ns,
            "run_delay_share": run_delay_share,
        }


def _width(values: list[int]) -> float:
    """The range of the middle half."""
    if len(values) < 2:
        return 0.0
    low, _, high = quantiles(values, n=4, method="inclusive")
    return high - low
