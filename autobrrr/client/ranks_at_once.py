"""All ranks of a job time their steps at once, so that the same steps can be set side by side.

In: a session for each rank, each on a thread of its own. Nothing is measured in any of them until all are
there; a rank that fails, or is too late, holds nobody up. One of them speaks with other machines. Out: each
session is told what came of it, and its snapshots show it from then on.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from autobrrr.client import far_ranks
from autobrrr.client.all_ranks import Joiner, compared
from autobrrr.client.far_ranks import FarRanks, RoundState, called
from autobrrr.client.far_tuning import follow, is_ours
from autobrrr.client.session_client import Client, join
from autobrrr.errors import AutobrrrError
from autobrrr.records import CollectiveWaits, Diagnosis, RanksCompared
from autobrrr.sidecar.session.session_states import State

if TYPE_CHECKING:  # it brings numpy
    from autobrrr.diagnosis.ranks.late_rank import TimedRank

COMPARED_S = 8.0  # or 8 steps, whichever is longer
OF_GIVEN = 0.25  # of a time that the user gives
MEET_S = 45.0  # for the others to be attached, and to know how their loops are built; then to be timed
FAR_S = 90.0  # for the rank that speaks with other machines; it gives up earlier
DONE_S = 300.0
LOOK_S = 0.1
CALL_S = 2.0  # between looks at what other machines want

Say = Callable[[str], None]


class RanksAtOnce:
    """One comparison.

    Args:
        pids: The ranks.
        for_s: The user's time for a diagnosis, where there is one.
    """

    def __init__(self, pids: Iterable[int], for_s: float | None = None, far: FarRanks | None = None) -> None:
        self._coming = set(pids)
        self._under_way: set[int] = set()
        self._ready: list[Diagnosis] = []
        self._speaks: int | None = None  # with other machines, for all of these
        self._has_met = self._has_heard = False  # it is through with that
        self._elsewhere: list[TimedRank] = []
        self._far = far or FarRanks()
        self._told: list[Diagnosis] = []
        self._timed: dict[int, CollectiveWaits] = {}
        self._found: RanksCompared | None = None
        self._for_s = COMPARED_S if for_s is None else min(COMPARED_S, OF_GIVEN * for_s)
        self._meet_s = MEET_S if for_s is None else min(MEET_S, for_s)
        self._far_s = far_ranks.MEET_S if for_s is None else min(far_ranks.MEET_S, for_s)
        self._changed = threading.Condition()

    def take_part(self, pid: int, client: Client, say: Say) -> None:
        """Time this rank's steps while all others do, where that can be; hear what all of them show."""
        try:
            try:
                try:
                    self._time(pid, client, say)
                finally:
                    self._speak(pid, client, say)
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

    def expects_others(self) -> bool:
        """Whether the job has ranks on other machines, once this is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_heard or not (self._coming or self._under_way))
            return bool(self._far.expected)

    @property
    def elsewhere(self) -> frozenset[int]:
        """The ranks of other machines that took part."""
        return self._far.met

    @property
    def round(self) -> RoundState | None:
        """The one in which other machines took part, or could have."""
        return self._far.round

    def leave(self, pid: int) -> None:
        """Do not wait for this rank any more."""
        with self._changed:
            self._coming.discard(pid)
            self._under_way.discard(pid)
            if self._speaks == pid:
                self._has_met = self._has_heard = True
            self._changed.notify_all()

    def _meets(self, pid: int, client: Client, say: Say) -> bool:
        """Whether there are others to be compared with, once all are there."""
        end_s = time.monotonic() + self._meet_s
        while (now := client.snapshot()).anatomy is None and time.monotonic() < end_s:
            time.sleep(LOOK_S)
        with self._changed:
            self._ready.append(now)
            self._under_way.add(pid)
            self._coming.discard(pid)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._coming, max(0.0, end_s - time.monotonic()))
            if self._speaks is None:
                self._speaks = pid
            ready = list(self._ready)
        if self._speaks == pid:
            try:
                self._far.meet(client, ready, self._far_s)
            except AutobrrrError as error:
                if self._far.expected:
                    say(f"ranks on other machines are not compared: {error.message}")
        with self._changed:
            self._has_met = self._has_met or self._speaks == pid
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._has_met, FAR_S)
            return len(self._ready) > 1 or bool(self._far.met)

    def _speak(self, pid: int, client: Client, say: Say) -> None:
        """Tell other machines what all ranks of this one have timed, and hear what theirs have."""
        if self._speaks != pid:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._under_way <= {pid}, self._meet_s)
            told, timed = list(self._told), dict(self._timed)
        try:
            self._elsewhere = self._far.exchange(client, told, timed)
        except AutobrrrError as error:
            say(f"ranks on other machines are not compared: {error.message}")

    def _time(self, pid: int, client: Client, say: Say) -> None:
        if client.facts.readonly or client.facts.outside:
            return
        client.hold()
        if self._meets(pid, client, say):
            if self._far.met:  # that took a while, and a session is held for a minute
                client.hold()
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
            if self._far.met:
                self._changed.wait_for(lambda: self._has_heard, FAR_S)
            timed = pid in self._timed
            awaited = (self._under_way,) if timed else (self._under_way, self._coming)
            longest_s = self._meet_s if timed else self._meet_s + self._for_s
            all_there = self._changed.wait_for(lambda: not any(awaited), longest_s)
            if self._found is None and (timed or all_there):
                self._found = compared(self._told, self._timed, self._elsewhere)
            return self._found


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


def answer_calls(
    pids: Sequence[int],
    first: RanksAtOnce,
    say: Say,
    joiner: Joiner = join,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Compare anew, or follow a tuning, whenever another machine begins one.

    For a thread that ends with the program. It looks at one key every other second. Ends where there is no
    other machine, or no session any more.

    Args:
        first: What was compared before.
    """
    last = first
    known = first.round
    while last.expects_others():
        sleep(CALL_S)
        try:
            client = next((each for each in map(joiner, pids) if each is not None), None)
            if client is None:
                return
            with client:
                while (found := called(client, known)) is None:
                    sleep(CALL_S)
                tuned = client.snapshot().state == State.TUNING.value
        except AutobrrrError:
            return
        known = found
        if found.phase == "tuned" and not is_ours(found):
            _follow(pids, found, say, joiner)
        if tuned or found.phase == "tuned":  # no one else's hooks beside it
            continue
        last = RanksAtOnce(pids)
        say(f"ranks on another machine are compared with these (round {found.name[:4]})")
        for thread in compare_sessions(pids, last, say, joiner):
            thread.join()
        known = last.round or found


def _follow(pids: Sequence[int], call: RoundState, say: Say, joiner: Joiner) -> None:
    say(f"{call.machine} tunes this job, and the ranks of this machine follow")
    try:
        with contextlib.ExitStack() as sessions:
            follow([sessions.enter_context(each) for each in map(joiner, pids) if each is not None], call)
    except AutobrrrError as error:
        say(f"they can't: {error.message}")
