"""The bench that experiments are made on: a device, sizes that outgrow its caches, a stop-watch.

Lives in the measuring process only, which has the wanted number of threads.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from autobrrr.roofline import quick_child

Fields = dict[str, object]  # of `Roofline`
Function = TypeVar("Function", bound=Callable[..., object])
MOST_ARRAY_BYTES = 1 << 30
LEAST_ARRAY_BYTES = 64 << 20
BUDGET_S = 0.3
ROUNDS = 7


class NoCompiler(Exception):
    """torch.compile can't make code here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineBench:
    """Where and how large to measure.

    `effort` scales sizes and times down: tests use little of it, figures all.
    """

    device: str
    threads: int
    last_cache_bytes: int
    effort: float = 1.0
    compiler: Callable[[Callable[..., object]], Callable[..., object]] | None = None

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def large_elements(self) -> int:
        """Elements of an fp32 array of at least four times the last cache."""
        array_bytes = min(max(4 * self.last_cache_bytes, LEAST_ARRAY_BYTES), MOST_ARRAY_BYTES)
        return max(int(array_bytes * self.effort) // 4, 1024)

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if not self.on_cpu:
            torch.cuda.synchronize(self.device)

    def best_ns(self, call: Callable[[], object], budget_s: float = BUDGET_S) -> int:
        """The shortest run of a call, its work on the device included."""

        def whole() -> None:
            call()
            self.wait()

        return quick_child.best_ns(whole if not self.on_cpu else call, budget_s * self.effort)

    def statement_ns(self, statement: str, names: dict[str, object], count: int) -> float:
        """Nanoseconds of a Python statement in a loop, the loop's own share included: best of seven.

        Args:
            statement: Source, compiled into the loop, so that no call is added to it.
            names: What it may use.
            count: Runs in a row; the device is waited for after the last.
        """
        timer = timeit.Timer(statement, timer=time.perf_counter_ns, globals=dict(names))
        count = max(int(count * self.effort), 20)
        best = float("inf")
        for _ in range(ROUNDS):
            took = timer.timeit(count)
            began = time.perf_counter_ns()
            self.wait()
            best = min(best, (took + time.perf_counter_ns() - began) / count)
        return best

    def compiled(self, function: Function) -> Function:
        """The function through torch.compile, whole or not at all.

        Raises:
            NoCompiler: when called for the first time, through `first_call`.
        """
        torch._dynamo.reset()  # else the tenth function of one name is left uncompiled
        make = self.compiler or (lambda each: torch.compile(each, fullgraph=True, dynamic=False))
        return make(function)  # type: ignore[return-value]


def first_call(call: Callable[[], object]) -> None:
    """Make a compiled function compile now.

    Raises:
        NoCompiler: there is no compiler, or it can't make this.
    """
    try:
        call()
    except (RuntimeError, OSError, ImportError) as error:
        raise NoCompiler(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
