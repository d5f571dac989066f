"""The job as its machine shows it: CPU, memory, run-queue delay, stolen time, its children.

Works without any code in the target. Shares are of wall time; of one core where CPU is meant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autobrrr.machine import control_groups, processors, procfs
from autobrrr.machine.cpu_takers import CpuTakers
from autobrrr.records import HostSample

CHILDREN_EVERY_NS = 2_000_000_000
BUSY_AT = 0.05  # of wall time that the training thread waits for a CPU: who has it is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    t_ns: int
    cpu_ns: int
    run_delay_ns: int | None
    machine_ticks: int
    stolen_ticks: int | None
    busy_ns: int | None
    throttled_ns: int | None


class HostDevice:
    """Samples one process; figures are over the time since the sample before.

    Args:
        pid: The process, as it is known here.
        train_tid: The training thread as it is known here; the main thread where it is not known.
        proc: Where `/proc` lies.
        clock_ns: A monotonic clock.
        cgroups: Where the control groups lie.
        beside: Processes of the other ranks of the same job on this machine.
    """

    name = "host"

    def __init__(
        self,
        pid: int,
        train_tid: int | None = None,
        proc: Path = procfs.PROC,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        cgroups: Path = control_groups.GROUPS,
        *,
        beside: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        self._pid = pid
        self._tid = train_tid or pid
        self._proc = proc
        self._cgroups = cgroups
        self._clock_ns = clock_ns
        self._last: _Reading | None = None
        self._beside = beside
        # At the last look: when; CPU time of children, their time without a CPU; CPU time of the other ranks.
        self._looked: tuple[int, dict[int, int], dict[int, int], dict[int, int]] | None = None
        self._shares: tuple[float | None, float | None, float | None] = (None, None, None)  # of the same
        self._takers = CpuTakers(pid, proc, beside=beside)

    def watch_thread(self, tid: int) -> None:
        """The training thread is known now."""
        self._tid = tid
        self._last = None

    def sample(self) -> HostSample | None:
        stat = procfs.stat(self._pid, self._proc)
        if stat is None or stat.state in "ZX":
            return None
        ticks, stolen = processors.machine_ticks(self._proc) or (0, None)
        now = _Reading(
            t_ns=self._clock_ns(),
            cpu_ns=stat.cpu_ns,
            run_delay_ns=procfs.run_delay_ns(self._pid, self._tid, self._proc),
            machine_ticks=ticks,
            stolen_ticks=stolen,
            busy_ns=processors.busy_ns(self._pid, self._proc),
            throttled_ns=control_groups.throttled_ns(self._pid, self._proc, self._cgroups),
        )
        before, self._last = self._last or now, now
        self._look_at_children(now.t_ns)
        children_share, children_delay, ranks_share = self._shares
        wall_ns, all_ticks = now.t_ns - before.t_ns, now.machine_ticks - before.machine_ticks
        delay = _unit(_per(before.run_delay_ns, now.run_delay_ns, wall_ns))
        cpu, busy = _per(before.cpu_ns, now.cpu_ns, wall_ns), _per(before.busy_ns, now.busy_ns, wall_ns)
        return HostSample(
            t_ns=now.t_ns,
            cpu_share=cpu,
            rss_bytes=stat.rss_bytes,
            threads=stat.threads,
            run_delay_share=delay,
            steal_share=_per(before.stolen_ticks, now.stolen_ticks, all_ticks),
            children_cpu_share=children_share,
            children_delay_share=children_delay,
            ranks_cpu_share=ranks_share,
            # Summed over the group's CPUs, of which several may be stopped at once.
            throttled_share=_unit(_per(before.throttled_ns, now.throttled_ns, wall_ns)),
            foreign_cores=None if cpu is None or busy is None else max(0.0, busy - cpu),
            takers=self._takers.look(now.t_ns, busy=max(delay or 0.0, children_delay or 0.0) >= BUSY_AT),
        )

    def _look_at_children(self, now_ns: int) -> None:
        """Only now and then: it walks all threads of the job."""
        before = self._looked
        if before is not None and now_ns - before[0] < CHILDREN_EVERY_NS:
            return
        found = self._times(procfs.descendants(self._pid, self._proc))
        waits = {pid: procfs.run_delay_ns(pid, pid, self._proc) or 0 for pid in found}
        ranks = self._times(self._beside())
        self._looked = now_ns, found, waits, ranks
        if before is not None:
            wall_ns = now_ns - before[0]
            ran_ns, waited_ns = _spent_ns(before[1], found), _spent_ns(before[2], waits)
            delay = waited_ns / (ran_ns + waited_ns) if ran_ns + waited_ns > 0 else None
            self._shares = ran_ns / wall_ns, delay, _spent_ns(before[3], ranks) / wall_ns

    def _times(self, pids: Iterable[int]) -> dict[int, int]:
        return {pid: each.cpu_ns for pid in pids if (each := procfs.stat(pid, self._proc))}


def _spent_ns(before: Mapping[int, int], now: Mapping[int, int]) -> int:
    return sum(cpu_ns - before[pid] for pid, cpu_ns in now.items() if pid in before)


def _per(before: int | None, now: int | None, wall: int) -> float | None:
    return None if before is None or now is None or wall <= 0 else (now - before) / wall


def _unit(share: float | None) -> float | None:
    return None if share is None else min(max(share, 0.0), 1.0)
