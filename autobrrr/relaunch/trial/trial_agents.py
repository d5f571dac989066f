"""The study's eyes in a trial: it joins the preloaded agents as they come up and reads their steps.

In: the folder in which the agents of one trial listen. Out: facts of the job and its steps. With
several ranks all are joined, and the lowest rank that trains is looked at.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from autobrrr import folders
from autobrrr.agent.loop.device_stamps import STAMP_EACH
from autobrrr.agent.phases.sampling_schedule import EVERY_STEP
from autobrrr.machine.file_readiness import is_readable
from autobrrr.records import FrameSamples, JobFacts
from autobrrr.relaunch.trial.trial_steps import TrialSteps
from autobrrr.sidecar.session.ring_reader import RingReader
from autobrrr.sidecar.sockets.socket_frames import AgentLink, Heard

# Every step shows what it holds, at up to 1 % of the time, alike on both sides of a comparison.
CLOSE: Mapping[str, int] = EVERY_STEP
# Where steps alone are counted.
USUAL: Mapping[str, int] = {"bursts_every": 2, "burst_steps": 1}
# For one question, when nothing is timed any more.
CLOSELY: Mapping[str, int] = {**EVERY_STEP, "cost_ppm": 50_000}

DRAIN_S = 0.001  # between looks whether a device is through


class TrialAgents:
    """One agent.

    Attributes:
        pid: Its process as seen from here; 0 where it can't be seen.
        lost: Which remedy has gone off by itself, and why; None: none has.
    """

    def __init__(self, link: socket.socket) -> None:
        self.pid, _ = folders.peer(link)
        self.link = AgentLink(link)
        self.facts: JobFacts | None = None
        self.steps = TrialSteps()
        self.cadence = CLOSE
        self.frames: FrameSamples | None = None
        self.lost: str | None = None
        self.draining = False  # it was asked to let its device work off what is queued
        self._ring: RingReader | None = None

    def look(self) -> None:
        """Take in what has come; never waits."""
        if self._ring is not None:
            self.steps.add(self._ring.read_new())
        while not self.link.lost and is_readable(self.link.wire):
            for event in self.link.read():
                if event.get("event") == "hello":
                    self._hello(event)
                elif event.get("event") == "facts":
                    self._know(event)
                elif event.get("event") == "remedy_lost":
                    self.lost = f"{event.get('remedy')} went off by itself: {event.get('why')}"
                elif event.get("event") == "frames":
                    self.frames = msgspec.convert(event.get("frames"), FrameSamples)

    def flush(self) -> None:
        """Have the agent write what it only noted, at the end of the step that runs."""
        self.link.command("watch", lambda _: None, **self.cadence)

    def sample_frames(self, for_ms: int, every_ms: int) -> None:
        """Have it look at its training thread for a while; `frames` holds what it saw."""
        self.frames = None
        self.link.command("frames", lambda _: None, for_ms=for_ms, every_ms=every_ms)

    def drain(self) -> None:
        """Have its device work off what is queued, and no more queued for a moment; `draining` until then."""

        def drained(_: Heard) -> None:
            self.draining = False

        self.draining = self.facts is not None and self.facts.is_asynchronous and not self.link.lost
        if self.draining:
            self.link.command("drain", drained)

    def _know(self, event: Heard) -> None:
        self.facts = msgspec.convert(event.get("facts"), JobFacts)
        self.steps.clock = "device" if self.facts.is_asynchronous else "host"

    def close(self) -> None:
        self.link.lose()
        self.link.wire.close()
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _hello(self, event: Heard) -> None:
        fd = self.link.wire.fds.popleft()
        try:
            self._ring = RingReader(fd)
        finally:
            os.close(fd)
        self._know(event)
        self.flush()
        self.link.command("stamp", lambda _: None, **STAMP_EACH)


class Witnesses:
    """The agents of one trial.

    Args:
        folder: Where they listen.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_name: dict[str, TrialAgents] = {}
        self.resting = False

    def look(self) -> None:
        if self.resting:
            return
        for file in self._folder.glob("agent-*.sock"):
            if file.name not in self._by_name:
                with contextlib.suppress(OSError):  # the agent is only coming up, or has ended
                    self._by_name[file.name] = TrialAgents(folders.connect(file))
        for witness in self._by_name.values():
            witness.look()

    @property
    def chief(self) -> TrialAgents | None:
        """Of those that train the lowest rank; else any that is there."""
        known = [each for each in self._by_name.values() if each.facts is not None]
        return min(
            known,
            key=lambda each: (not each.steps.count, (each.facts and each.facts.rank) or 0),
            default=None,
        )

    @property
    def steps(self) -> TrialSteps:
        return TrialSteps() if self.chief is None else self.chief.steps

    @property
    def facts(self) -> JobFacts | None:
        return None if self.chief is None else self.chief.facts

    @property
    def lost(self) -> str | None:
        """A remedy that has gone off by itself in one of them, and why."""
        return next((each.lost for each in self._by_name.values() if each.lost is not None), None)

    @property
    def pid(self) -> int | None:
        """The process that the chief sits in, as seen from here."""
        return None if self.chief is None else self.chief.pid

    @property
    def world_size(self) -> int:
        return (None if self.facts is None else self.facts.world_size) or 1

    def flush(self) -> None:
        if self.chief is not None:
            self.chief.flush()

    def drain(self, patience_s: float) -> None:
        """Wait until the devices of all of them are through with what is queued; at once on a CPU."""
        for witness in self._by_name.values():
            witness.drain()
        deadline_s = time.monotonic() + patience_s
        while any(each.draining for each in self._by_name.values()) and time.monotonic() < deadline_s:
            time.sleep(DRAIN_S)
            self.look()

    def close(self) -> None:
        """Leave; the agents take everything off."""
        for witness in self._by_name.values():
            witness.close()
        self._by_name.clear()

    def rest(self) -> None:
        """Leave the agents to somebody else for a while."""
        self.close()
        self.resting = True

    def return_(self) -> None:
        self.resting = False
