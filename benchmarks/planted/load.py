"""How busy the machine is with what is not ours, while something runs.

The CPU time of the machine, less that of this process and all it has started and reaped. A verdict
withheld on a busy machine is no fault of the program, so every row carries this figure.
"""

import os
import time
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Over one span of time; in cores."""

    foreign_cores: float
    stolen_cores: float
    average_1m: float


class LoadMeter:
    """Begins when it is made. Read it when all children have been waited for, and their time is known."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._busy_s, self._stolen_s = _machine_s()
        self._ours_s = _ours_s()

    def read(self) -> Load:
        span = max(1e-6, time.monotonic() - self._began_s)
        busy_s, stolen_s = _machine_s()
        foreign_s = busy_s - self._busy_s - (_ours_s() - self._ours_s)
        return Load(
            foreign_cores=round(max(0.0, foreign_s) / span, 3),
            stolen_cores=round((stolen_s - self._stolen_s) / span, 3),
            average_1m=round(os.getloadavg()[0], 2),
        )


def _machine_s() -> tuple[float, float]:
    """Seconds in which the machine ran anything, and that were stolen from it."""
    now = psutil.cpu_times()
    return now.user + now.nice + now.system + now.irq + now.softirq, now.steal


def _ours_s() -> float:
    """CPU time of this process, and of what it has started and reaped."""
    return sum(os.times()[:4])
