"""How busy the machine is with what is not ours, while something runs.

The CPU time of the machine, less that of this process and all it has started and reaped. A verdict
withheld on a busy machine is no fault of the program, so every row carries this figure.
"""

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Over one span of time; in cores."""

    foreign_cores: float
    stolen_cores: float
    average_1m: float


class LoadMeter:
    """Begins when it is made. Read it when all children have been waited for, and their time is known."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._began_s = time.monotonic()
        self._busy_s, self._stolen_s = _machine_s(proc)
        self._ours_s = _ours_s()

    def read(self) -> Load:
        span = max(1e-6, time.monotonic() - self._began_s)
        busy_s, stolen_s = _machine_s(self._proc)
        foreign_s = busy_s - self._busy_s - (_ours_s() - self._ours_s)
        return Load(
            foreign_cores=round(max(0.0, foreign_s) / span, 3),
            stolen_cores=round((stolen_s - self._stolen_s) / span, 3),
            average_1m=round(os.getloadavg()[0], 2),
        )


def _machine_s(proc: Path) -> tuple[float, float]:
    words = (proc / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, soft, steal = (int(word) for word in words[:8])
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + soft) * tick_s, steal * tick_s


def _ours_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
