"""Sessions that are there already, joined to be asked once a second: of jobs in a list, of a job's ranks.

Nothing is attached by this. Where the ranks were not compared yet, or one of them has changed, they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from autobrrr.client.all_ranks import with_siblings
from autobrrr.client.each_rank import compare_sessions
from autobrrr.client.session_client import Client, join
from autobrrr.errors import AutobrrrError
from autobrrr.records import Diagnosis, JobLine
from autobrrr.records.session_requests import TakeSnapshot
from autobrrr_tui.view_state import View

LIST_S = 10.0
ASK_S = 1.0
COMPARE_S = 60.0  # between two comparisons
TUNING = "tuning"  # the state of a session whose steps nobody else may make longer

Compare = Callable[[Sequence[int]], object]


class Siblings:
    """Asked by the listener of one rank; works on a thread of its own once there are several ranks.

    Args:
        compare: Has the sessions of these ranks time the same steps; each is told what came of it.
    """

    def __init__(
        self,
        list_jobs: Callable[[], list[JobLine]],
        joiner: Joiner = join,
        compare: Compare = lambda pids: compare_sessions(pids, None, lambda text: None),
    ) -> None:
        self._list_jobs, self._compare = list_jobs, compare
        self._sessions = JoinedSessions(joiner)
        self._told: dict[int, Diagnosis] = {}  # by pid
        self._own: Diagnosis | None = None
        self._may_compare = False
        self._left = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self, view: View) -> View:
        """The view with all ranks that are known; unchanged for a job of one rank."""
        found = view.snapshot
        if found is None or found.job is None or found.job.rank is None or not found.job.has_other_ranks:
            return view
        self._own, self._may_compare = found, view.acting and not view.tuning
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, args=(found.pid,), name="ranks", daemon=True)
            self._thread.start()
        return replace(view, snapshot=with_siblings(found, list(self._told.values())))

    def close(self) -> None:
        self._left.set()

    def _watch(self, own_pid: int) -> None:
        looked = compared = 0.0
        others: list[int] = []
        while True:
            if looked <= 0:
                others, looked = self._others(own_pid), LIST_S
            self._told = self._sessions.look(others)
            if compared <= 0 and self._lack_comparison():
                self._compare([own_pid, *self._told])
                compared = COMPARE_S
            looked, compared = looked - ASK_S, compared - ASK_S
            if self._left.wait(ASK_S):
                break
        self._sessions.close()

    def _lack_comparison(self) -> bool:
        """Whether there are several, and what makes one of them late is not known."""
        own, told = self._own, list(self._told.values())
        if own is None or not told or not self._may_compare:
            return False
        ready = all(one.anatomy is not None and one.state != TUNING for one in (own, *told))
        return ready and with_siblings(own, told).straggler is None

    def _others(self, own_pid: int) -> list[int]:
        """The processes of the other ranks that have a session."""
        listed = self._list_jobs()
        job = next((line.job for line in listed if line.pid == own_pid), None)
        return [
            line.pid
            for line in listed
            if job is not None and line.job == job and line.attached and line.pid != own_pid
        ]


Joiner = Callable[[int], Client | None]


class JoinedSessions:
    """One connection a job; used by one thread."""

    def __init__(self, joiner: Joiner = join) -> None:
        self._join = joiner
        self._clients: dict[int, Client] = {}  # by pid

    def look(self, pids: Iterable[int]) -> dict[int, Diagnosis]:
        """A snapshot of each that has a session; one that fails is joined anew the next time."""
        wanted, found = list(pids), {}
        for pid in wanted:
            try:
                client = self._clients.get(pid) or self._join(pid)
                if client is not None:
                    self._clients[pid] = client
                    found[pid] = client.ask(TakeSnapshot())
            except AutobrrrError:
                self._leave(pid)
        for pid in set(self._clients) - set(wanted):
            self._leave(pid)
        return found

    def close(self) -> None:
        self.look(())

    def _leave(self, pid: int) -> None:
        if pid in self._clients:
            self._clients.pop(pid).close()
