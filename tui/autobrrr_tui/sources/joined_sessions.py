"""Sessions that are there already, joined to be asked for their snapshots; nothing is attached by this."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autobrrr.client.session_client import Client, join
from autobrrr.errors import AutobrrrError
from autobrrr.records import Diagnosis

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
                    found[pid] = client.snapshot()
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
