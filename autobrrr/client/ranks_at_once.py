"""All ranks of a job time their steps at once, so that the same steps can be set side by side.

In: a session for each rank, each on a thread of its own. Nothing is measured in any of them until all are
there; a rank that fails, or is too late, holds nobody up. Out: each session is told what came of it, and its
snapshots show it from then on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from autobrrr.client.all_ranks import Joiner, compared
from autobrrr.client.session_client import Client, join
from autobrrr.errors import AutobrrrError
from autobrrr.records import CollectiveWaits, Diagnosis, RanksCompared

COMPARED_S = 8.0  # or 8 steps, whichever is longer
OF_GIVEN = 0.25  # of a time that the user gives
MEET_S = 45.0  # for the others to be attached, and to know how their loops are built; then to be timed
DONE_S = 300.0
LOOK_S = 0.1

Say = Callable[[str], None]


class RanksAtOnce:
    """One comparison.

    Args:
        pids: The ranks.
        for_s: The user's time for a diagnosis, where there is one.
    """

    def __init__(self, pids: Iterable[int], for_s: float | None = None) -> None:
        self._coming = set(pids)
        self._under_way: set[int] = set()
        self._ready = 0
        self._told: list[Diagnosis] = []
        self._timed: dict[int, CollectiveWaits] = {}
        self._found: RanksCompared | None = None
        self._for_s = COMPARED_S if for_s is None else min(COMPARED_S, OF_GIVEN * for_s)
        self._meet_s = MEET_S if for_s is None else min(MEET_S, for_s)
        self._changed = threading.Condition()

    def take_part(self, pid: int, client: Client, say: Say) -> None:
        """Time this rank's steps while all others do, where that can be; hear what all of them show."""
        try:
            try:
                self._time(pid, client)
            finally:
                self.leave(pid)
        except AutobrrrError as error:
            say(error.message)
        try:
            found = self._outcome(pid)
            if found is not None:
                client.compared(found)
        except AutobrrrError as error:
            say(error.message)

    def leave(self, pid: int) -> None:
        """Do not wait for this rank any more."""
        with self._changed:
            self._coming.discard(pid)
            self._under_way.discard(pid)
            self._changed.notify_all()

    def _meets(self, pid: int, client: Client) -> bool:
        """Whether there are others to be compared with, once all are there."""
        end_s = time.monotonic() + self._meet_s
        await_anatomy(client, self._meet_s)
        with self._changed:
            self._ready += 1
            self._under_way.add(pid)
            self._coming.discard(pid)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._coming, max(0.0, end_s - time.monotonic()))
            return self._ready > 1

    def _time(self, pid: int, client: Client) -> None:
        if client.facts.readonly or client.facts.outside:
            return
        client.hold()
        if self._meets(pid, client):
            timed = client.compare(self._for_s, DONE_S)
            now = client.snapshot()
            with self._changed:
                self._told.append(now)
                self._timed[pid] = timed
        else:
            client.go_on()

    def _outcome(self, pid: int) -> RanksCompared | None:
        """What the steps of all ranks show; a rank that is much later than this one is left out."""
        with self._changed:
            timed = pid in self._timed
            awaited = (self._under_way,) if timed else (self._under_way, self._coming)
            longest_s = self._meet_s if timed else self._meet_s + self._for_s
            all_there = self._changed.wait_for(lambda: not any(awaited), longest_s)
            if self._found is None and (timed or all_there):
                self._found = compared(self._told, self._timed)
            return self._found


def await_anatomy(client: Client, for_s: float | None = None) -> None:
    """Wait until a session knows how its job's loop is built, at most so long, else as for other ranks."""
    end_s = time.monotonic() + (MEET_S if for_s is None else for_s)
    while client.snapshot().anatomy is None and time.monotonic() < end_s:
        time.sleep(LOOK_S)


def compare_sessions(
    pids: Sequence[int], at_once: RanksAtOnce, say: Say, joiner: Joiner = join
) -> list[threading.Thread]:
    """Have the sessions of these ranks take part, on threads that end with the program."""

    def work(pid: int) -> None:
        try:
            client = joiner(pid)
            if client is not None:
                with client:
                    at_once.take_part(pid, client, say)
        except AutobrrrError as error:
            say(error.message)
        finally:
            at_once.leave(pid)

    threads = [threading.Thread(target=work, args=(pid,), name="ranks", daemon=True) for pid in pids]
    for thread in threads:
        thread.start()
    return threads
