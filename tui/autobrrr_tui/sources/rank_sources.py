"""The other ranks of a job: sessions that are there already are joined, and asked about once a second.

Nothing is attached by this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from autobrrr.client.all_ranks import slowest_of
from autobrrr.client.session_client import Client, join
from autobrrr.errors import AutobrrrError
from autobrrr.records import Diagnosis, JobLine
from autobrrr_tui.view_state import RankCell, View

LIST_S = 10.0
ASK_S = 1.0


class Siblings:
    """Asked by the listener of one rank; works on a thread of its own once there are several ranks."""

    def __init__(
        self, list_jobs: Callable[[], list[JobLine]], joiner: Callable[[int], Client | None] = join
    ) -> None:
        self._list_jobs, self._join = list_jobs, joiner
        self._clients: dict[int, Client] = {}  # by pid
        self._told: dict[int, Diagnosis] = {}
        self._left = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self, view: View, now_s: float) -> tuple[RankCell, ...]:
        """The ranks that are known, this one among them; none for a job of one rank."""
        found = view.snapshot
        if found is None or found.job is None or found.job.rank is None or not found.job.has_other_ranks:
            return ()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, args=(found.pid,), name="ranks", daemon=True)
            self._thread.start()
        size = found.job.world_size
        others = {
            one.job.rank: one
            for one in list(self._told.values())
            if one.job is not None and one.job.rank is not None and one.job.world_size == size
        }
        return cells({**others, found.job.rank: found})

    def close(self) -> None:
        self._left.set()

    def _watch(self, own_pid: int) -> None:
        looked = 0.0
        while True:
            if looked <= 0:
                self._find(own_pid)
                looked = LIST_S
            self._ask()
            looked -= ASK_S
            if self._left.wait(ASK_S):
                break
        for client in self._clients.values():
            client.close()

    def _find(self, own_pid: int) -> None:
        listed = self._list_jobs()
        job = next((line.job for line in listed if line.pid == own_pid), None)
        for line in listed:
            same = job is not None and line.job == job and line.attached
            if not same or line.pid in (own_pid, *self._clients):
                continue
            try:
                client = self._join(line.pid)
            except AutobrrrError:
                continue
            if client is not None:
                self._clients[line.pid] = client

    def _ask(self) -> None:
        for pid, client in list(self._clients.items()):
            try:
                self._told[pid] = client.snapshot()
            except AutobrrrError:
                client.close()
                del self._clients[pid]
                self._told.pop(pid, None)


def cells(by_rank: dict[int, Diagnosis]) -> tuple[RankCell, ...]:
    """One cell a rank, the one that the others wait for marked."""
    slowest = slowest_of(list(by_rank.values()))
    return tuple(
        RankCell(
            rank=rank,
            pid=found.pid,
            step_ns=found.step_ns.median,
            regime=found.regime,
            slowest=slowest is not None and slowest.pid == found.pid,
        )
        for rank, found in sorted(by_rank.items())
    )
