"""Who takes the CPU from a job while its machine is busy: the processes that ran most meanwhile.

In: `/proc`, read every few seconds, and only while the training thread waits for a CPU. Out: processes on the
job's CPUs, with their shares of one core. The job, its other ranks and autobrrr's own commands don't count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from autobrrr.machine import procfs
from autobrrr.machine.processors import allowed_cpus
from autobrrr.readable import readable
from autobrrr.records import CpuTaker

EVERY_NS = 2_000_000_000
LISTED = 64
LEAST = 0.05  # of one core
# Of ours: what measures for a command that waits, and ends by itself; a command, or the screen of a session.
OWN = ("/autobrrr/roofline/quick_child.py", "/autobrrr", "-m autobrrr")


class CpuTakers:
    """Looks at all processes but one job's and our own.

    Args:
        beside: The other ranks of the job.
    """

    def __init__(
        self, pid: int, proc: Path = procfs.PROC, beside: Callable[[], Iterable[int]] = tuple
    ) -> None:
        self._pid, self._proc, self._beside = pid, proc, beside
        self._before: dict[int, tuple[int, int]] | None = None  # when it began (ticks), what it has run (ns)
        self._at_ns = 0
        self._found: list[CpuTaker] = []

    def look(self, now_ns: int, *, busy: bool) -> list[CpuTaker]:
        """Those of the last few seconds; none while the machine is quiet, and nothing is looked through."""
        if not busy:
            self._before, self._found = None, []
            return []
        wall_ns = now_ns - self._at_ns
        if self._before is not None and wall_ns < EVERY_NS:
            return self._found
        before, now = self._before, self._all()
        self._before, self._at_ns = now, now_ns
        if before is None:
            return []
        known = (os.getpid(), self._pid, *self._beside())  # what a session replays of a step runs below it
        family = {each for pid in known for each in (pid, *procfs.descendants(pid, self._proc))}
        took = {
            pid: (ran_ns - before[pid][1]) / wall_ns
            for pid, (began, ran_ns) in now.items()
            if pid not in family and pid in before and before[pid][0] == began
        }
        cpus = allowed_cpus(self._pid)
        ran = (
            pid
            for pid in took
            if took[pid] >= LEAST and not self._is_own(pid) and _meet(cpus, allowed_cpus(pid))
        )
        most = sorted(ran, key=lambda pid: -took[pid])[:LISTED]
        self._found = [
            CpuTaker(pid=pid, command=self._command(pid), share=round(took[pid], 3)) for pid in most
        ]
        return self._found

    def _all(self) -> dict[int, tuple[int, int]]:
        seen = ((pid, procfs.stat(pid, self._proc)) for pid in procfs.pids(self._proc))
        return {pid: (each.start_ticks, each.cpu_ns) for pid, each in seen if each is not None}

    def _is_own(self, pid: int) -> bool:
        script = procfs.script(procfs.cmdline(pid, self._proc))
        return script is not None and script.raw.endswith(OWN)

    def _command(self, pid: int) -> str:
        """The program, and of a Python process what it runs; no further word: it may hold a secret."""
        words, seen = procfs.cmdline(pid, self._proc), procfs.stat(pid, self._proc)
        program = seen.comm.raw if seen is not None else "?"
        if words and " " not in words[0].raw:  # else a path with spaces, or a title, which may hold all words
            program = os.path.basename(words[0].raw)
        script = procfs.script(words) if procfs.is_python(program) else None
        return readable(f"{program} {os.path.basename(script.raw)}" if script is not None else program)


def _meet(cpus: frozenset[int] | None, theirs: frozenset[int] | None) -> bool:
    return cpus is None or theirs is None or not cpus.isdisjoint(theirs)
