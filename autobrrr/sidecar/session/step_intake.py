"""Takes in what comes by itself: step records from the ring, samples of the machine.

In: the ring, the device, the turn of the ranks. Out: the findings' window, history and host samples; whoever
listens gets every new record at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from autobrrr.records import HostSample
from autobrrr.sidecar.process.rank_lock import RankLock, Waiting
from autobrrr.sidecar.session.collected import Collected
from autobrrr.sidecar.session.ring_reader import Records

HOST_EVERY_NS = 500_000_000


class HostSource(Protocol):
    """Where samples of the machine come from."""

    def sample(self) -> HostSample | None:
        """Figures over the time since the call before; None where there is nothing to say (any more)."""


class Ring(Protocol):
    """Where step records come from."""

    @property
    def steps(self) -> int:
        """Number of the next record."""

    def read_new(self) -> Records:
        """Records since the last call."""


class StepIntake:
    """One a session.

    Attributes:
        ring: None before the agent is in, and once the ring is gone.
        listen: Gets all new records of the ring.
        turn: Of the ranks of the job, to be measured.
    """

    def __init__(self, findings: Collected, device: HostSource) -> None:
        self.ring: Ring | None = None
        self.listen: Callable[[Records], None] = lambda records: None
        self.turn = RankLock()
        self._findings, self._device = findings, device
        self._read: list[Records] = []  # since the last look
        self._waiting = Waiting()  # while another rank is measured
        self._sampled_ns: int | None = None

    def read(self) -> None:
        """Hand new steps to who listens, at little cost; all else takes them in at the next look.

        Raises:
            NoRing: nothing can be made of it any more.
        """
        if self.ring is not None and len(records := self.ring.read_new()):
            self._read.append(records)
            self.listen(records)

    def take_in(self, now_ns: int) -> None:
        """What has been read, and a sample of the machine where it is time."""
        findings = self._findings
        if self._read:
            records, self._read = np.concatenate(self._read), []
            if self._disturbed(now_ns):
                findings.window.pass_over(records)
            else:
                findings.window.add(records)
            findings.history.add(records, findings.window.clock)
        if self._sampled_ns is None or now_ns - self._sampled_ns >= HOST_EVERY_NS:
            self._sampled_ns = now_ns
            sample = self._device.sample()
            if sample is not None:
                findings.see_host(sample)

    def _disturbed(self, now_ns: int) -> bool:
        """Whether another rank is being measured: what makes its steps longer, this one waits for."""
        facts = self._findings.facts
        several = facts is not None and facts.has_other_ranks
        return not self._waiting.over(now_ns, not several or not self.turn.elsewhere())
