"""Asks a device that may stall a few times a second, on a thread of its own, and keeps what it said.

In: a device, and whether it has to rest because something is being measured. Out: the samples of the last
ten seconds, at any time and without waiting.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Protocol

from autobrrr.records import GpuSample

EVERY_S = 0.2
KEPT_NS = 10_000_000_000
CLOSE_S = 0.5  # a call that stalls longer is left alone: the thread is a daemon


class GpuDevice(Protocol):
    """A device behind a driver."""

    name: str
    gone: bool  # nothing will ever come (any more)

    def sample(self) -> GpuSample | None:
        """Figures over the time since the call before; None where there is nothing to say."""

    def close(self) -> None:
        """Let go of it, on the thread that samples."""


class Poller:
    """One device.

    Args:
        resting: While this is true the device is not asked.
        clock_ns: A monotonic clock.
    """

    def __init__(
        self,
        device: GpuDevice,
        resting: Callable[[], bool],
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._device, self._resting, self._clock_ns = device, resting, clock_ns
        self._kept: tuple[tuple[int, GpuSample], ...] = ()  # replaced whole: another thread reads it
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Ask from now on."""
        self._thread = threading.Thread(target=self._run, name=self._device.name, daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Ask once, unless it rests."""
        if self._resting():
            return
        sample = self._device.sample()
        now_ns = self._clock_ns()
        fresh = self._fresh(now_ns)
        self._kept = fresh if sample is None else (*fresh, (now_ns, sample))

    def samples(self) -> tuple[GpuSample, ...]:
        """The last ten seconds, oldest first."""
        return tuple(sample for _, sample in self._fresh(self._clock_ns()))

    def close(self) -> None:
        """Ask no more. Waits a moment for a call that is under way."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _fresh(self, now_ns: int) -> tuple[tuple[int, GpuSample], ...]:
        return tuple(one for one in self._kept if one[0] >= now_ns - KEPT_NS)

    def _run(self) -> None:
        try:
            while not self._ended.is_set() and not self._device.gone:
                self.look()
                self._ended.wait(EVERY_S)
            self._device.close()
        except Exception:  # noqa: BLE001 - no figure is worth the session
            traceback.print_exc()
