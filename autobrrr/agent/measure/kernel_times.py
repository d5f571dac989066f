"""What the timed steps of a trace show: the kernels' own time, by phase and by operator, beside plain steps.

In: profiled steps, plain ones; the common operators on a few elements. Out: the payload of `traced`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter_ns
from types import ModuleType

from ..live_torch.dispatch_modes import unwatched
from ..live_torch.job_signals import OF_TORCH
from ..phases.phase_clock import NAMES
from .cpu_profiler import ProfiledStep, profiled, read_step

TOP_OPS = 40
FEWEST_PLAIN = 3
OVERLONG = 2  # times the usual: a page fault, or another program on the CPU
EVEN_KERNELS = 0.15  # of a step: range of the middle half of what operators take
LONG_STEP_NS = 2_000_000  # from here on the phase hooks are less than half a percent
COST_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenStep:
    """One ordinary step: under the profiler, with its phases, or plain."""

    ns: int
    delay_ns: int = 0  # that its thread waited for a CPU
    timed: ProfiledStep | None = None
    phases: dict[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """Nanoseconds under the profiler, by operator and calls within it; and what others take."""

    usual_ns: int = 0
    each_ns: int = 0  # for each call within it
    known: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def of(self, name: str, within: int) -> int:
        """The floor of one call."""
        return self.known.get((name, within), self.usual_ns + self.each_ns * within)


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
        """Operators take about the same part of each step, however long it is."""
        parts = [sum(map(step.spent_ns.__getitem__, step.operators)) / max(1, ns) for step, ns in self.timed]
        return _width(parts) <= EVEN_KERNELS

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


class FloorMeter:
    """What operators cost before their kernel has anything to do: their own time on 8 elements.

    One that takes scalars, or writes in place, or differentiates, has a dearer way to its kernel than a plain
    addition: one floor for all would call that way "kernel work". So the common ones are timed one by one,
    under the same profiler, between steps that are timed: a machine runs faster and slower, and floors are
    most of what short operators take. For the rest, for what is not in another torch, and for a call that
    takes another way, the floor follows from how many calls it makes within. Draws no random number, leaves
    no tensor.
    """

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        with unwatched(torch):
            self._programs = _programs(torch)
        self._found: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._usual: list[int] = []
        self.op_cost_ns: int | None = None

    def time(self) -> None:
        """Time all of them once more, one after the other, as in a step: some milliseconds."""
        with unwatched(self._torch):
            if self.op_cost_ns is None:
                with OF_TORCH:
                    self.op_cost_ns = op_cost_ns(self._torch)
            for program in self._programs:
                self._found_in(program)

    @property
    def floors(self) -> Floors:
        """What has been measured so far."""
        usual_ns = int(median(self._usual)) if self._usual else 0
        known = {key: int(median(times)) for key, times in self._found.items()}
        each = [(ns - usual_ns) / within for (_, within), ns in known.items() if within]
        return Floors(usual_ns=usual_ns, each_ns=int(median(each)) if each else 0, known=known)

    def _found_in(self, program: Callable[[], None]) -> None:
        with self._torch.no_grad():
            step = _watched(self._torch, program)
        for at in step.operators:
            self._found[step.names[at], step.within[at]].append(step.spent_ns[at])
            if program is self._programs[0] and not step.within[at]:
                self._usual.append(step.spent_ns[at])


def op_cost_ns(torch: ModuleType) -> int:
    """What a tiny operator costs when nobody watches, forward with autograd and backward."""
    weight = torch.ones(8, dtype=torch.float32, device="cpu", requires_grad=True)

    def chain() -> None:
        with torch.enable_grad():
            y = weight
            for _ in range(8):
                y = y * weight + weight
            torch.autograd.grad(y.sum(), weight)

    operators, best = len(_watched(torch, chain).operators), 1 << 62
    for _ in range(COST_ROUNDS):
        began = perf_counter_ns()
        chain()
        best = min(best, perf_counter_ns() - began)
    return best // max(1, operators)


def _watched(torch: ModuleType, program: Callable[[], None]) -> ProfiledStep:
    """What the profiler sees of a program, as far as this torch can run it."""
    end = profiled(torch)
    try:
        with OF_TORCH:
            program()
    finally:
        found = end()
    return read_step(torch, *(found or ([], 0)))


def _programs(torch: ModuleType) -> list[Callable[[], None]]:
    """The first one makes the usual floor."""
    options = {"dtype": torch.float32, "device": "cpu"}
    a, b = torch.ones(8, **options), torch.ones(8, **options)
    m, w = torch.ones((2, 4), **options), torch.ones((4, 4), **options)
    index = torch.zeros(2, dtype=torch.int64, device="cpu")
    f = torch.nn.functional

    def usual() -> None:
        (torch.mul(torch.add(a, a), a), torch.relu(a), torch.mm(m, m.t()), a.sum(), a.view(2, 4))

    def in_place() -> None:
        x, y = torch.ones_like(a), torch.zeros_like(a)
        x.mul_(0.9).add_(a, alpha=0.1).lerp_(a, 0.1).neg_()
        y.addcmul_(a, a, value=0.1)
        (y.sqrt() / 1.5).add_(1e-8)
        x.addcdiv_(a, a, value=-0.1).add_(a).mul_(a).sub_(a).div_(2.0).copy_(a).fill_(0.0).zero_()

    def pointwise() -> None:
        (a + 1.0, a * 2.0, a - a, a / a, a / 2.0, -a, a.abs(), a**2, a.pow(2.0), a.exp(), a.log(), a.sqrt())
        (a.rsqrt(), a.tanh(), a.sigmoid(), f.gelu(a), f.silu(a), a.sin(), a.cos(), torch.maximum(a, a))
        (a > 0, a >= 0, a == 0, a >= b, a == b, a.clamp(0.0, 1.0), torch.where(a > 0, a, a))
        a.masked_fill(a > 2, 0.0)

    def shapes() -> None:
        (m.t(), m.transpose(0, 1), m.unsqueeze(0), m[0], m[:, 1:], m.expand(2, 4), m.reshape(8))
        (m.permute(1, 0), m.split(1), m.contiguous(), a.clone(), a.detach(), a.to(torch.float64))
        (torch.cat([a, a]), torch.stack([a, a]), torch.empty_like(a), torch.zeros(8, **options))
        torch.arange(8, device="cpu")

    def reductions() -> None:
        (a.mean(), a.max(), m.sum(0), m.mean(1), m.max(1), m.argmax(1), a.norm(), m.var(1), a.sum().item())
        (f.softmax(m, 1), f.log_softmax(m, 1), torch.bmm(m[None], w[None]), m @ w, torch.addmm(a[:4], m, w))
        f.embedding(index, m)

    def differentiated() -> None:
        with torch.enable_grad():
            x, k = m.clone().requires_grad_(), w.clone().requires_grad_()
            bias = torch.ones(4, requires_grad=True, **options)
            y = f.layer_norm(f.relu(f.linear(x, k, bias)), (4,), bias, bias)
            y = f.gelu(y) + torch.tanh(y) * torch.sigmoid(y) + f.silu(y)
            loss = f.cross_entropy(y, index) + (y - x).pow(2).mean() + f.mse_loss(y, m)
            torch.autograd.grad(loss, (x, k, bias))

    def convolved() -> None:
        with torch.enable_grad():
            x = torch.ones((2, 1, 4, 4), requires_grad=True, **options)
            k, one = (torch.ones(shape, requires_grad=True, **options) for shape in ((1, 1, 3, 3), (1,)))
            y = f.relu(f.batch_norm(f.conv2d(x, k, one, padding=1), None, None, one, one, training=True))
            y = f.adaptive_avg_pool2d(f.max_pool2d(y, 2), 1).flatten(1)
            torch.autograd.grad(y.sum(), (x, k, one))

    return [usual, in_place, pointwise, shapes, reductions, differentiated, convolved]
