"""What the dearest products of a step take alone: the same operator on tensors of the same make, repeated.

In: product calls of a counted step, as they came. Out: nanoseconds of one call, by operator and shapes: the
roof that this operator has on this machine, which a square product of another size does not show. Keeps
no tensor of the job, draws no random number; runs at step boundaries, a slice at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from types import ModuleType
from typing import NamedTuple, cast

from ..live_torch.dispatch_modes import foreign_mode
from ..live_torch.torch_types import Tensor
from .dispatch_timer import Count
from .op_work import Work

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")
MOST_NOTED = 64
MOST_CALLS = 3
LEAST_NS = 100_000  # of one call: a shorter one is judged by what all products reach
LEAST_SHARE = 0.05  # of the step's kernels
RUNS = 6  # the first of them warms up
LONG_NS, LONG_RUNS = 20_000_000, 3  # from here on so many: each holds training up for as long
MOST_BYTES = 128 << 20  # of a call's tensors
FILL = 0.5

Key = tuple[str, str, str]  # operator, shapes, type


class _Make(NamedTuple):
    """How a tensor is made."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: object


class _Noted(NamedTuple):
    func: object
    args: tuple[object, ...]


class CallsAlone:
    """Notes calls while a step is counted, then runs the dearest."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._noted: dict[Key, _Noted | None] = {}  # None: calls that differ in what the key does not say
        self._waiting: list[Key] | None = None
        self._runs: list[int] = []
        self._given: tuple[object, ...] | None = None
        self.best_ns: dict[Key, int] = {}

    def noting(self, count: Count) -> Count:
        """The same count, which notes product calls besides."""

        def noted(
            func: object, args: tuple[object, ...], kwargs: dict[str, object], out: object
        ) -> Work | None:
            work = count(func, args, kwargs, out)
            if work is not None and work.flops and not kwargs and len(self._noted) < MOST_NOTED:
                self._note(func, args, work)
            return work

        return noted

    def slice(self, table: Sequence[dict[str, object]], budget_ns: int) -> bool:
        """Run noted calls for so long, one at least; True once all that is worth it has been run.

        Args:
            table: Rows of the step's operators, as in `records.OpWork`.
        """
        if self._waiting is None:
            self._waiting = self._dearest(table)
        if self._watched():
            self._waiting = []
        end_ns = perf_counter_ns() + budget_ns
        while self._waiting:
            if not self._run(self._waiting[0]):
                self._waiting.pop(0)
                self._runs, self._given = [], None
            if perf_counter_ns() > end_ns:
                break
        return not self._waiting

    def _watched(self) -> bool:
        """Whether a mode or a profiler of the job's would see what runs now."""
        torch = self._torch
        return foreign_mode(torch) is not None or torch.autograd._profiler_enabled()

    def fill_in(self, table: Sequence[dict[str, object]]) -> None:
        """Put the figures into the rows."""
        for row in table:
            row["alone_ns"] = self.best_ns.get(_key(row))

    def _note(self, func: object, args: tuple[object, ...], work: Work) -> None:
        key = (str(func), work.shapes, work.dtype)
        name = str(getattr(func, "__name__", "")).partition(".")[0]
        if name not in PRODUCTS:
            return
        try:
            made = tuple(map(self._make, args))
        except TypeError:
            return
        if key in self._noted and (self._noted[key] is None or cast(_Noted, self._noted[key]).args != made):
            self._noted[key] = None
        else:
            self._noted[key] = _Noted(func, made)

    def _make(self, thing: object) -> object:
        """A tensor's make, or the thing itself; raises TypeError where that is not all there is to it."""
        torch = self._torch
        if isinstance(thing, torch.Tensor):
            plain = type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.layout is torch.strided
            if not plain or not thing.dtype.is_floating_point or thing.device.type != "cpu":
                raise TypeError
            return _Make(tuple(thing.shape), tuple(thing.stride()), thing.dtype)
        if isinstance(thing, (list, tuple)):
            return tuple(map(self._make, thing))
        if thing is None or isinstance(thing, (bool, int, float)):
            return thing
        raise TypeError

    def _dearest(self, table: Sequence[dict[str, object]]) -> list[Key]:
        spent: dict[Key, float] = {}
        count: dict[Key, float] = {}
        for row in table:
            if self._noted.get(_key(row)) is not None:
                spent[_key(row)] = spent.get(_key(row), 0.0) + cast(float, row["kernel_ns"])
                count[_key(row)] = count.get(_key(row), 0.0) + cast(float, row["count"])
        everything = sum(cast(float, row["kernel_ns"]) for row in table)
        worth = [
            key
            for key, ns in spent.items()
            if ns >= LEAST_SHARE * everything and ns / max(1.0, count[key]) >= LEAST_NS
        ]
        return sorted(worth, key=lambda key: -spent[key])[:MOST_CALLS]

    def _run(self, key: Key) -> bool:
        """One run; False once there were enough, or it fails."""
        noted = self._noted[key]
        if noted is None or len(self._runs) >= self._enough:
            return False
        try:
            if self._given is None:
                self._given = self._tensors(noted.args)
            with self._torch.no_grad(), self._torch.autocast("cpu", enabled=False):
                began_ns = perf_counter_ns()
                noted.func(*self._given)  # type: ignore[operator]
                self._runs.append(perf_counter_ns() - began_ns)
        except (MemoryError, RuntimeError, TypeError):
            return False
        if len(self._runs) == self._enough:
            self.best_ns[key] = min(self._runs[1:])
        return True

    @property
    def _enough(self) -> int:
        return LONG_RUNS if self._runs and self._runs[0] >= LONG_NS else RUNS

    def _tensors(self, args: tuple[object, ...]) -> tuple[object, ...]:
        """Tensors of the same make, all of one number; raises MemoryError where they are too large."""
        left = MOST_BYTES
        made: list[object] = []
        for arg in args:
            if isinstance(arg, _Make):
                one = cast(
                    Tensor, self._torch.empty_strided(arg.shape, arg.stride, dtype=arg.dtype, device="cpu")
                )
                left -= one.numel() * one.element_size()
                if left < 0:
                    raise MemoryError
                made.append(one.fill_(FILL))
            else:
                made.append(list(arg) if isinstance(arg, tuple) else arg)
        return tuple(made)


def _key(row: dict[str, object]) -> Key:
    return str(row["op"]), str(row["shapes"]), str(row["dtype"])
