"""A job on several machines is tuned from one of them; the ranks of the others follow.

In: the sessions of this machine's ranks. Out: who tunes. It is said at the key of the job's store at which
comparisons begin: so nobody compares ranks beside it. Which steps a remedy goes on at is the agents' affair.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from autobrrr.client.far_ranks import ROUND, RoundState, looked, machine_name, put_over
from autobrrr.client.session_client import Client
from autobrrr.errors import AutobrrrError

FOLLOW_S = 90.0  # for ranks of other machines to say that they follow, where they were there before
LOOK_S = 1.0
MOST_TRIES = 5
FOLLOWS = "follows"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class TunedElsewhere(AutobrrrError):
    """Another machine tunes the job; the ranks of this one follow."""

    def __init__(self, call: RoundState) -> None:
        super().__init__(
            f"{call.machine} tunes this job; the ranks of this machine follow it", "wait until it is done"
        )
        self.call = call


class FarTuning:
    """Who tunes a job of several machines. For one thread.

    Args:
        client: The session that speaks for this machine.
        sleep: Seconds.
        clock_s: Monotonic.
    """

    def __init__(
        self,
        client: Client,
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._sleep, self._clock_s = client, sleep, clock_s
        self._call: RoundState | None = None

    def lead(self) -> RoundState | None:
        """Say that this machine tunes; None where that stands, else who does.

        Raises:
            AutobrrrError: the store can't be asked.
        """
        name = _this_machine() + os.urandom(4).hex()
        ours = RoundState(name=name, phase="tuned", machine=machine_name())
        for _ in range(MOST_TRIES):
            standing = self._client.notes([ROUND]).get(ROUND, "")
            found = RoundState.read(standing)
            if found is not None and found.phase == "tuned" and not is_ours(found):
                return found
            if self._client.note(ROUND, ours.text(), standing) == ours.text():
                self._call = ours
                return None
        raise AutobrrrError("ranks on other machines are being compared", "tune again in a minute")

    def await_followers(self, ranks: Collection[int], patience_s: float) -> None:
        """Wait until these ranks of other machines follow.

        Raises:
            AutobrrrError: one can't, or is not there.
        """
        if self._call is None:
            return
        waited_for, end_s = set(ranks), self._clock_s() + patience_s
        while waited_for:
            for rank, text in looked(self._client, FOLLOWS, waited_for).items():
                name, _, why = text.partition(" ")
                if name == self._call.name:
                    if why:
                        raise AutobrrrError(
                            f"remedies can't be applied to all ranks: rank {rank}: {why}",
                            "autobrrr tune PID of one rank applies what changes no result",
                        )
                    waited_for.discard(rank)
            if waited_for and self._clock_s() >= end_s:
                missing = ", ".join(map(str, sorted(waited_for)))
                raise AutobrrrError(
                    f"a remedy goes on in all ranks or in none, and rank {missing} does not follow",
                    "on each other machine, leave autobrrr attach PID of its launcher running, or tune",
                )
            if waited_for:
                self._sleep(LOOK_S)

    def end(self) -> None:
        """Nobody tunes any more."""
        call, self._call = self._call, None
        if call is not None:
            closed = RoundState(name=call.name, phase="closed")
            self._client.note(ROUND, closed.text(), call.text())

    def wait_until_over(self, call: RoundState, patience_s: float) -> bool:
        """Wait while another machine tunes; False: it still does.

        Raises:
            AutobrrrError: the store can't be asked.
        """
        end_s = self._clock_s() + patience_s
        while RoundState.read(self._client.notes([ROUND]).get(ROUND)) == call:
            if self._clock_s() >= end_s:
                return False
            self._sleep(LOOK_S)
        return True


def follow(clients: Iterable[Client], call: RoundState) -> None:
    """Have the ranks of these sessions switch with those of the machine that tunes; tell it, or why not.

    Raises:
        AutobrrrError: the store can't be asked, or a session has ended.
    """
    why = {client: client.together(far=True) for client in clients}
    for client, reason in why.items():
        job = client.snapshot().job
        if job is not None and job.rank is not None:
            put_over(
                client, f"{FOLLOWS}/{job.rank}", call.name if reason is None else f"{call.name} {reason}"
            )


def is_ours(call: RoundState) -> bool:
    """Whether a tuning was begun on this machine."""
    return call.name.startswith(_this_machine())


def _this_machine() -> str:
    """Not its name: containers may share that."""
    seen = f"{BOOT_ID.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    return hashlib.blake2s(seen.encode(), digest_size=4).hexdigest()
