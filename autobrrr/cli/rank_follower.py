"""Listens to the sessions of several ranks at once, and puts together what they said last."""

from __future__ import annotations

import threading
from collections.abc import Callable

from autobrrr.client.session_client import Client
from autobrrr.errors import AutobrrrError
from autobrrr.records import Diagnosis

CHUNK_S = 0.25
STOP_S = 5.0


class Follower:
    """Keeps the last snapshot of one session, on a thread of its own, until it ends or is told to stop."""

    def __init__(self, client: Client, every_s: float, say: Callable[[str], None]) -> None:
        self.client = client
        self.latest: Diagnosis | None = None
        self.error: AutobrrrError | None = None  # what ended the listening before the session
        self._every_s, self._say = every_s, say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="rank", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether there is nothing more to come."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Leave the session to the caller, with a last look at it."""
        self._stop.set()
        self._thread.join(STOP_S)
        if self.over and self.client.ending is None:
            try:
                self.latest = self.client.snapshot()
            except AutobrrrError as error:
                self._say(error.message)

    def _follow(self) -> None:
        try:
            while not self._stop.is_set() and self.client.ending is None:
                for snapshot in self.client.snapshots(
                    for_s=CHUNK_S, every_s=self._every_s, on_activity=self._say
                ):
                    self.latest = snapshot
        except AutobrrrError as error:
            self.error = error
            self._say(error.message)
