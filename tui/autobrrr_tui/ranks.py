"""The other ranks of a job: sessions that are there already are joined, and asked about once a second.

Nothing is attached by this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from autobrrr.client import Client, join
from autobrrr.errors import AutobrrrError
from autobrrr.records import Diagnosis, JobLine
from autobrrr_tui.state import RankCell, View

LIST_S = 10.0
ASK_S = 1.0


class Siblings:
    """Asked by the listener of one rank; works on a thread of its own once there are several ranks."""

    def __init__(
        self, list_jobs: Callable[[], list[JobLine]], joiner: Callable[[int], Client | None] = join
    ) -> None:
        self._list_jobs, self._join = list_jobs, joiner
        self._clients: dict[int, tuple[int, Client]] = {}  # pid -> rank, connection
        self._cells: dict[int, RankCell] = {}
        self._left = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self, view: View, now_s: float) -> tuple[RankCell, ...]:
        """The ranks that are known, this one among them; none for a job of one rank."""
        found = view.snapshot
        if found is None or found.job is None or found.job.rank is None or (found.job.world_size or 1) < 2:
            return ()
        if self._thread is None:
            script = found.job.script.rsplit("/", 1)[-1]
            self._thread = threading.Thread(
                target=self._watch, args=(found.pid, script), name="ranks", daemon=True
            )
            self._thread.start()
        cells = {**self._cells, found.job.rank: cell(found.job.rank, found)}
        return tuple(cells[rank] for rank in sorted(cells))

    def close(self) -> None:
        self._left.set()

    def _watch(self, own_pid: int, script: str) -> None:
        looked = 0.0
        while True:
            if looked <= 0:
                self._find(own_pid, script)
                looked = LIST_S
            self._ask()
            looked -= ASK_S
            if self._left.wait(ASK_S):
                break
        for _, client in self._clients.values():
            client.close()

    def _find(self, own_pid: int, script: str) -> None:
        for job in self._list_jobs():
            same = job.script is not None and job.script.rsplit("/", 1)[-1] == script
            if job.rank is None or not same or not job.attached or job.pid in (own_pid, *self._clients):
                continue
            try:
                client = self._join(job.pid)
            except AutobrrrError:
                continue
            if client is not None:
                self._clients[job.pid] = (job.rank, client)

    def _ask(self) -> None:
        for pid, (rank, client) in list(self._clients.items()):
            try:
                self._cells[rank] = cell(rank, client.snapshot())
            except AutobrrrError:
                client.close()
                del self._clients[pid]
                self._cells.pop(rank, None)


def cell(rank: int, found: Diagnosis) -> RankCell:
    return RankCell(rank=rank, pid=found.pid, step_ns=found.step_ns.median, regime=found.regime)
