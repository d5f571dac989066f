"""What the timed steps of a trace show: the kernels' own time, by phase and by operator, beside plain steps.

In: profiled steps, plain ones, floors. Out: the payload of `traced`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from ..phases.phase_clock import NAMES
from .cpu_profiler import ProfiledStep
from .op_floors import Floors

TOP_OPS = 40
FEWEST_PLAIN = 3
OVERLONG = 2  # times the usual: a page fault, or another program on the CPU
EVEN_STEPS, EVEN_KERNELS = 0.25, 0.15  # range of the middle half, over the median step
LONG_STEP_NS = 2_000_000  # from here on the phase hooks are less than half a percent


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenStep:
    """One ordinary step: under the profiler, with its phases, or plain."""

    ns: int
    delay_ns: int = 0  # that its thread waited for a CPU
    timed: ProfiledStep | None = None
    phases: dict[str, int] | None = None


class KernelTimes:
    """What steps have shown."""

    def __init__(self, taken: Sequence[TakenStep], floors: Floors | None = None) -> None:
        self.floors = floors or Floors()
        self.timed = [(each.timed, each.ns) for each in taken if each.timed is not None]
        untimed = [each for each in taken if each.timed is None]
        self.plain_ns = [each.ns for each in untimed if each.phases is None]
        self.sampled_ns = [each.ns for each in untimed if each.phases is not None]
        self.phases = [each.phases for each in untimed if each.phases is not None]

    def own_ns(self) -> list[list[float]]:
        """Of each of them, what the kernel of each operator did, at the speed of the usual step.

        A call that took more than twice its usual time in steps of the same operators was interrupted.
        """
        timed, floor = self.timed, self.floors.of
        usual_ns = median(step_ns for _, step_ns in timed)
        alike: dict[tuple[str, ...], list[list[int]]] = defaultdict(list)
        for step, _ in timed:
            names = tuple(step.names[at] for at in step.operators)
            alike[names].append([step.spent_ns[at] for at in step.operators])
        most = {
            names: [OVERLONG * median(column) for column in zip(*rows, strict=True)]
            for names, rows in alike.items()
        }
        found = []
        for step, step_ns in timed:
            limits = most[tuple(step.names[at] for at in step.operators)]
            found.append(
                [
                    max(0.0, min(step.spent_ns[at], limit) - floor(step.names[at], step.within[at]))
                    * usual_ns
                    / max(1, step_ns)
                    for at, limit in zip(step.operators, limits, strict=True)
                ]
            )
        return found

    def enough(self, steps: int) -> bool:
        """So many steps were timed, plain ones have been seen too, and their phases in some."""
        return len(self.timed) >= steps and len(self.untraced_ns) >= FEWEST_PLAIN and bool(self.phases)

    @property
    def untraced_ns(self) -> list[int]:
        """Plain steps; with those whose phases were sampled (some us longer) where they are few, or long."""
        if len(self.plain_ns) < FEWEST_PLAIN or median(self.plain_ns) >= LONG_STEP_NS:
            return self.plain_ns + self.sampled_ns
        return self.plain_ns

    @property
    def steady(self) -> bool:
        """Steps, and the operators in them, vary little from one to the next."""
        usual = median(self.untraced_ns)
        usual_timed = median(ns for _, ns in self.timed)
        spent = [sum(map(step.spent_ns.__getitem__, step.operators)) for step, _ in self.timed]
        operators = [one * usual_timed / max(1, ns) for one, (_, ns) in zip(spent, self.timed, strict=True)]
        return _width(self.untraced_ns) <= EVEN_STEPS * usual and _width(operators) <= EVEN_KERNELS * usual

    def record(self, *, op_cost_ns: int | None, run_delay_share: float | None) -> dict[str, object]:
        """The payload of `traced`."""
        timed, own_ns = self.timed, self.own_ns()
        each = 1 / len(timed)
        by_phase: dict[str, float] = dict.fromkeys(NAMES, 0.0)
        calls: dict[str, float] = dict.fromkeys(NAMES, 0.0)
        by_op: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for (step, _), own in zip(timed, own_ns, strict=True):
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
            "kernel_ns": [int(sum(own)) for own in own_ns],
            "traced_step_ns": [step_ns for _, step_ns in timed],
            "plain_step_ns": self.untraced_ns,
            "operations": [len(own) for own in own_ns],
            "kernel_by_phase_ns": by_phase,
            "plain_by_phase_ns": {
                name: sum(phases.get(name, 0) for phases in self.phases) / len(self.phases) for name in names
            },
            "operations_by_phase": calls,
            "by_op": [
                {"op": name.replace("::", "."), "count": count, "kernel_ns": ns}
                for name, (count, ns) in dearest
            ],
            "between_ns": median(step.between_ns for step, _ in timed),
            "op_cost_ns": op_cost_ns,
            "run_delay_share": run_delay_share,
        }


def _width(values: Sequence[float]) -> float:
    """The range of the middle half."""
    if len(values) < 2:
        return 0.0
    low, _, high = quantiles(values, n=4, method="inclusive")
    return high - low
