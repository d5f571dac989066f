"""Takes in what comes by itself: step records from the ring, samples of the machine, the turn of a rank.

In: the ring, the device, the name of the job. Out: the findings' window, history and host samples; whoever
listens gets every new record at once. The ranks of one job are measured one at a time: what is done to one,
all the others wait for. The turn is a lock on a file in the folder of the sessions, which the kernel lets
go of when its holder dies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from autobrrr import folders
from autobrrr.machine.host_sampler import HostDevice
from autobrrr.sidecar.session.collected import Collected
from autobrrr.sidecar.session.ring_reader import Records, RingReader

PREFIX = "ranks-"
TURN_NS = 120_000_000_000  # a rank that holds the turn for longer measures nothing any more


class RankLock:
    """The turn of one rank of a job to be measured; who holds it for too long is passed over.

    Args:
        folder: Where the sessions of the job lie; None: it has one rank, whose turn it always is.
        job: The same for all ranks of the job.
    """

    def __init__(self, folder: Path | None = None, job: str = "") -> None:
        self._file = None if folder is None else folder / f"{PREFIX}{job}.lock"
        self._lock: int | None = None
        self._since_ns: int | None = None  # another one has it

    def take(self, now_ns: int) -> bool:
        """Whether it is ours now, or already was. A folder that can't be written holds nobody up."""
        if self._file is not None and self._lock is None:
            try:
                self._lock = folders.lock(self._file)
            except OSError:
                return True
            return self._lock is not None or not self.elsewhere(now_ns)
        return True

    def elsewhere(self, now_ns: int) -> bool:
        """Whether another one has it now."""
        if self._file is None or self._lock is not None or not folders.is_locked(self._file):
            self._since_ns = None
            return False
        self._since_ns = now_ns if self._since_ns is None else self._since_ns
        return now_ns - self._since_ns < TURN_NS

    def give(self) -> None:
        """Let the next one have it; may be called when it is not ours."""
        lock, self._lock = self._lock, None
        if lock is not None and self._file is not None:
            folders.unlock(self._file, lock)


HOST_EVERY_NS = 500_000_000


class StepIntake:
    """One a session.

    Attributes:
        ring: None before the agent is in, and once the ring is gone.
        listen: Gets all new records of the ring.
        turn: Of the ranks of the job, to be measured.
    """

    def __init__(self, findings: Collected, device: HostDevice) -> None:
        self.ring: RingReader | None = None
        self.listen: Callable[[Records], None] = lambda records: None
        self.turn = RankLock()
        self._findings, self._device = findings, device
        self._read: list[Records] = []  # since the last look
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
        return facts is not None and facts.has_other_ranks and self.turn.elsewhere(now_ns)
