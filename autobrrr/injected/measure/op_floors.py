"""What each operator costs before its kernel has anything to do: its own time on a few elements.

An operator that takes scalars, or writes in place, or differentiates, has a dearer way to its kernel
than a plain addition: one floor for all would call that way "kernel work". So the common ones are
timed one by one, under the same mode, on tensors of 8 elements; the rest get the usual floor.
Draws no random number and leaves no tensor behind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from types import ModuleType

ROUNDS = 8
WARM_UP = 2  # rounds that are not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """Nanoseconds under the mode, by operator, and of an operator that is not among them."""

    usual_ns: int = 0
    by_op: Mapping[object, int] = field(default_factory=dict)

    def of(self, op: object) -> int:
        """The floor of one operator."""
        return self.by_op.get(op, self.usual_ns)


Timed = Callable[[Callable[[], None]], list[tuple[object, int]]]


class FloorMeter:
    """Times the common operators on 8 elements, a group of them in each slice.

    Args:
        timed: Runs a function under the mode and returns (operator, nanoseconds) as they came.
    """

    def __init__(self, torch: ModuleType, timed: Timed) -> None:
        self._timed = timed
        self._programs = _programs(torch)
        self._next = 0
        self._usual_ns = 0
        self._by_op: dict[object, int] = {}

    def slice(self) -> bool:
        """Time the next group; a few milliseconds. True once all are done."""
        if self._next == len(self._programs):
            return True
        spent: dict[object, list[int]] = defaultdict(list)
        program = self._programs[self._next]
        for number in range(ROUNDS):
            try:
                readings = self._timed(program)
            except (AttributeError, RuntimeError, TypeError):
                break  # another torch: these keep the usual floor
            if number >= WARM_UP:
                for op, ns in readings:
                    spent[op].append(ns)
        for op, times in spent.items():
            self._by_op.setdefault(op, int(median(times)))
        if self._next == 0:
            times = [ns for readings in spent.values() for ns in readings]
            self._usual_ns = int(median(times)) if times else 0
        self._next += 1
        return self._next == len(self._programs)

    @property
    def floors(self) -> Floors:
        """What has been measured so far."""
        return Floors(usual_ns=self._usual_ns, by_op=self._by_op)


def _programs(torch: ModuleType) -> list[Callable[[], None]]:
    """The first one makes the usual floor."""
    options = {"dtype": torch.float32, "device": "cpu"}
    a, b = torch.ones(8, **options), torch.ones(8, **options)
    m = torch.ones((2, 4), **options)
    w = torch.ones((4, 4), **options)
    index = torch.zeros(2, dtype=torch.int64, device="cpu")
    f = torch.nn.functional

    def usual() -> None:
        with torch.no_grad():
            torch.mul(torch.add(a, a), a)
            torch.relu(a)
            torch.mm(m, m.t())
            a.sum()
            a.view(2, 4)

    def in_place() -> None:
        with torch.no_grad():
            x, y = torch.ones_like(a), torch.zeros_like(a)
            x.mul_(0.9).add_(a, alpha=0.1)
            x.lerp_(a, 0.1)
            y.addcmul_(a, a, value=0.1)
            (y.sqrt() / 1.5).add_(1e-8)
            x.addcdiv_(a, a, value=-0.1)
            x.add_(a).mul_(a).sub_(a).div_(2.0).copy_(a).fill_(0.0).zero_()
            x.neg_()

    def pointwise() -> None:
        with torch.no_grad():
            (a + 1.0, a * 2.0, a - a, a / a, a / 2.0, -a, a.abs(), a**2, a.pow(2.0))
            (
                a.exp(),
                a.log(),
                a.sqrt(),
                a.rsqrt(),
                a.tanh(),
                a.sigmoid(),
                f.gelu(a),
                f.silu(a),
                a.sin(),
                a.cos(),
            )
            (
                a > 0,
                a >= 0,
                a == 0,
                a >= b,
                a == b,
                a.clamp(0.0, 1.0),
                torch.where(a > 0, a, a),
                a.masked_fill(a > 2, 0.0),
            )
            torch.maximum(a, a)

    def shapes() -> None:
        with torch.no_grad():
            (
                m.t(),
                m.transpose(0, 1),
                m.unsqueeze(0),
                m[0],
                m[:, 1:],
                m.expand(2, 4),
                m.reshape(8),
                m.permute(1, 0),
            )
            (a.clone(), a.detach(), torch.cat([a, a]), torch.stack([a, a]), m.split(1), a.to(torch.float64))
            (torch.empty_like(a), torch.zeros(8, **options), torch.arange(8, device="cpu"), m.contiguous())

    def reductions() -> None:
        with torch.no_grad():
            (a.mean(), a.max(), m.sum(0), m.mean(1), m.max(1), m.argmax(1), a.norm(), m.var(1))
            (f.softmax(m, 1), f.log_softmax(m, 1), a.sum().item())
            (torch.bmm(m[None], w[None]), m @ w, torch.addmm(a[:4], m, w), f.embedding(index, m))

    def differentiated() -> None:
        with torch.enable_grad():
            x, k = m.clone().requires_grad_(), w.clone().requires_grad_()
            bias = torch.ones(4, requires_grad=True, **options)
            y = f.linear(x, k, bias)
            y = f.layer_norm(f.relu(y), (4,), bias, bias)
            y = f.gelu(y) + torch.tanh(y) * torch.sigmoid(y) + f.silu(y)
            loss = f.cross_entropy(y, index) + (y - x).pow(2).mean() + f.mse_loss(y, m)
            torch.autograd.grad(loss, (x, k, bias))

    return [usual, in_place, pointwise, shapes, reductions, differentiated]
