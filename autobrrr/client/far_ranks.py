"""The ranks of a job on other machines: they are met through the job's own store, and tell what they timed.

In: the session of one rank of this machine, which speaks for all of them, and what these ranks timed. Out:
the ranks of other machines with the steps that they timed in the same round. A round is open until all ranks
of the job are there or somebody is tired of waiting; whoever closes it starts the clocks of all. What stands
in the store is foreign: it is bounded, looked at, and believed in as far as it is like ours. Who does not
answer is waited for some seconds, and left out.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from autobrrr.attach import job_roles
from autobrrr.client.all_ranks import timed_ranks, world_size
from autobrrr.client.session_client import Client
from autobrrr.errors import AutobrrrError
from autobrrr.readable import readable
from autobrrr.records import CollectiveWaits, Diagnosis

if TYPE_CHECKING:  # it brings numpy
    from autobrrr.diagnosis.ranks.late_rank import TimedRank

MEET_S = 10.0  # for the first rank of another machine
MORE_S = 15.0  # for the rest of them, once one is there,
MOST_MEET_S = 30.0  # ... and in all
STEPS_S = 20.0  # for what they timed, once ours are there
LOOK_S = 1.0
ROUND = "round"
KEYS_AT_ONCE = 16
MOST_RANKS = 4096
NAME_CHARACTERS = 64
Phase = Literal["open", "closed", "tuned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundState:
    """What stands in the store of a comparison over machines, or of a tuning."""

    name: str
    phase: Phase
    machine: str = ""  # that tunes

    def text(self) -> str:
        return " ".join(filter(None, (self.phase, self.name, self.machine)))

    @classmethod
    def read(cls, text: str | None) -> RoundState | None:
        """None where no round stands there."""
        phase, _, rest = (text or "").partition(" ")
        name, _, machine = rest.partition(" ")
        known: Phase | None = next((each for each in get_args(Phase) if each == phase), None)
        is_named = len(name) == 16 and name.isalnum() and bool(machine) == (phase == "tuned")
        if known is None or not is_named:
            return None
        return cls(name=name, phase=known, machine=readable(machine, NAME_CHARACTERS))


class FarRanks:
    """One comparison with the ranks of other machines. For one thread.

    Attributes:
        expected: How many there are, once they were to be met; None where that is not known.
        round: The one in which they were to be met.

    Args:
        name: Of this machine.
        elsewhere: How many ranks of a process's job run on other machines; None where that is not known.
        sleep: Seconds.
        clock_s: Monotonic.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        elsewhere: Callable[[int], int | None] = job_roles.ranks_elsewhere,
        sleep: Callable[[float], object] = time.sleep,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = (name or machine_name())[:NAME_CHARACTERS]
        self._elsewhere, self._sleep, self._clock_s = elsewhere, sleep, clock_s
        self.round: RoundState | None = None
        self._there: set[int] = set()  # ranks of other machines that take part
        self.expected: int | None = None

    @property
    def met(self) -> frozenset[int]:
        """The ranks of other machines that take part."""
        return frozenset(self._there)

    def meet(self, client: Client, told: Sequence[Diagnosis], patience_s: float = MEET_S) -> None:
        """Say that ranks of this machine are ready, and wait for the others until a round begins.

        Raises:
            AutobrrrError: the store can't be asked.
        """
        ours = {one.job.rank for one in told if one.job is not None and one.job.rank is not None}
        size = world_size(told) or 0
        missing = set(range(size)) - ours if size <= MOST_RANKS else set()
        coming = self.expected = self._elsewhere(told[0].pid) if ours and missing else 0
        if coming == 0:
            return
        self.round = self._joined(client)
        if self.round.phase == "tuned":
            raise AutobrrrError(f"{self.round.machine} tunes the job", "wait until it is done")
        for rank in sorted(ours):
            put_over(client, f"ready/{rank}", f"{self.round.name} {self._name}")
        began_s = self._clock_s()
        end_s = began_s + patience_s
        while True:
            for rank, text in looked(client, "ready", missing - self._there).items():
                if _round_of(text) == self.round.name:
                    self._there.add(rank)
                    end_s = max(end_s, min(self._clock_s() + MORE_S, began_s + MOST_MEET_S))
            all_there = len(self._there) >= (len(missing) if coming is None else coming)
            over = all_there or self._clock_s() >= end_s
            if over or RoundState.read(client.notes([ROUND]).get(ROUND)) != self.round:
                break
            self._sleep(LOOK_S)
        client.note(ROUND, RoundState(name=self.round.name, phase="closed").text(), self.round.text())
        for rank, text in looked(client, "ready", missing - self._there).items():  # came meanwhile
            if _round_of(text) == self.round.name:
                self._there.add(rank)

    def exchange(
        self, client: Client, told: Sequence[Diagnosis], timed: Mapping[int, CollectiveWaits]
    ) -> list[TimedRank]:
        """Tell what ranks of this machine timed; what those of other machines did.

        Raises:
            AutobrrrError: the store can't be asked.
        """
        if self.round is None or not self._there:
            return []
        from autobrrr.diagnosis.ranks.rank_summary import packed, unpacked

        for one in timed_ranks(told, timed):
            text = packed(one, self._name)
            if text is not None:
                put_over(client, f"steps/{one.rank}", f"{self.round.name} {text}")
        found: dict[int, TimedRank] = {}
        nonsense: set[int] = set()
        end_s = self._clock_s() + STEPS_S
        while True:
            waited_for = self._there - set(found) - nonsense
            for rank, text in looked(client, "steps", waited_for).items():
                name, _, steps = text.partition(" ")
                if name != self.round.name:
                    continue  # of a round before
                try:
                    one = unpacked(steps)
                except ValueError:
                    nonsense.add(rank)
                    continue
                if one.rank == rank:
                    found[rank] = one
                else:
                    nonsense.add(rank)
            if not self._there - set(found) - nonsense or self._clock_s() >= end_s:
                return [found[rank] for rank in sorted(found)]
            self._sleep(LOOK_S)

    def _joined(self, client: Client) -> RoundState:
        """The round that is open, or the tuning that goes on; ours where there is none."""
        ours = RoundState(name=os.urandom(8).hex(), phase="open")
        standing = client.notes([ROUND]).get(ROUND, "")
        found = RoundState.read(standing)
        if found is not None and found.phase != "closed":
            return found
        after = RoundState.read(client.note(ROUND, ours.text(), standing))
        return after if after is not None and after.phase != "closed" else ours


def machine_name() -> str:
    """This machine's, for people."""
    return readable(platform.node() or "a machine without a name", NAME_CHARACTERS)


def put_over(client: Client, key: str, text: str) -> None:
    """Put it there, whatever stood there before: nobody else writes to the keys of our ranks."""
    standing = client.note(key, text)
    if standing != text:
        client.note(key, text, standing)


def looked(client: Client, word: str, ranks: Iterable[int]) -> dict[int, str]:
    """What stands at the keys of these ranks."""
    keys = {f"{word}/{rank}": rank for rank in sorted(ranks)}
    names = list(keys)
    found: dict[str, str] = {}
    for start in range(0, len(names), KEYS_AT_ONCE):
        found |= client.notes(names[start : start + KEYS_AT_ONCE])
    return {keys[key]: text for key, text in found.items() if key in keys}


def _round_of(text: str) -> str | None:
    """In which round a rank says that it is ready; None where this is none of ours."""
    name, _, machine = text.partition(" ")
    return name if machine else None


def called(client: Client, last: RoundState | None) -> RoundState | None:
    """What another machine has begun since the last round that we know of; one look at one key.

    Raises:
        AutobrrrError: the store can't be asked.
    """
    found = RoundState.read(client.notes([ROUND]).get(ROUND))
    fresh = found is not None and found.phase != "closed" and (last is None or found.name != last.name)
    return found if fresh else None
