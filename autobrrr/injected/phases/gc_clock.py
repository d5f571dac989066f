"""How long Python's garbage collector holds training up, in a sampled step.

A callback of `gc.callbacks` that is there between the step's two ends only. A collection stops every
Python thread, so those that the agent's own thread sets off count as well.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from time import perf_counter_ns


class GarbageClock:
    """Time inside collections while it is on."""

    def __init__(self) -> None:
        self._since = 0
        self._spent_ns = 0
        self._callback = self._called

    def put_on(self) -> None:
        """Begin anew."""
        self._since = self._spent_ns = 0
        if self._callback not in gc.callbacks:
            gc.callbacks.append(self._callback)

    def take_off(self) -> int:
        """End; nanoseconds since it was put on. From any thread, also twice."""
        try:
            gc.callbacks.remove(self._callback)
        except ValueError:
            pass  # the user has cleared the list, or it was off
        return self._spent_ns

    def _called(self, phase: str, info: Mapping[str, object]) -> None:
        if phase == "start":
            self._since = perf_counter_ns()
        elif self._since:
            self._spent_ns += perf_counter_ns() - self._since
            self._since = 0
