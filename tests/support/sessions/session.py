"""A session whose job, agent, clock and device are played by the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from autobrrr.records import Attach, HostSample, ProfilerWindow
from autobrrr.sidecar.process.session_options import SessionOptions, State
from autobrrr.sidecar.session.ring_reader import RingReader
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.session.session_log import SessionLog
from support.machines.devices import ReplayedDevice
from support.sessions.sidecar import (
    RingWriter,
    ScriptedAgent,
    StepModel,
    anatomy,
    host_sample,
    job_facts,
    probed,
    traced,
)

SECOND_NS = 1_000_000_000


class Stage:
    """A session with everything around it played by the test; time passes only in `run`."""

    def __init__(self, folder: Path, model: StepModel | None = None, **options: object) -> None:
        self.now_ns = 1000 * SECOND_NS
        self.alive = True
        self.oom_kills: int | None = 0
        self.own_cpu_ns = 0
        self.model = model or StepModel()
        self.agent = ScriptedAgent()
        self.writer = RingWriter()
        self.log = SessionLog(folder / "session.jsonl")
        self.said: list[str] = []
        self.samples_at_once = True  # stacks come first in every course, and are seldom what a test is about
        self.session = Session(
            42,
            SessionOptions(**options),  # type: ignore[arg-type]
            device=ReplayedDevice(sample(n) for n in range(100_000)),
            journal=self.log,
            alive=lambda: self.alive,
            clock_ns=lambda: self.now_ns,
            own_cpu_ns=lambda: self.own_cpu_ns,
            cores=2,
            oom_kills=lambda: self.oom_kills,
        )
        self.session.say = lambda line: self.said.append(line.text)

    def enter(self, **changes: object) -> Stage:
        self.session.entered(
            self.agent,
            RingReader(self.writer.fd),
            job_facts(42, **changes),
            Attach(method="ptrace", latency_ns=3_000_000, pause_ns=400_000),
        )
        return self

    def run(self, steps: int = 0, *, seconds: float = 0.1, flags: int = 0, arm: int = 0) -> State:
        """Let the job train and the session look once, this much later."""
        for _ in range(steps):
            self.writer.model_step(self.model, flags=flags, arm=arm)
        self.now_ns += int(seconds * SECOND_NS)
        self.session.tick()
        if self.samples_at_once and self.session.state is State.SAMPLING:
            self.agent.answer("frames")
            self.event("frames", {"samples": 0, "places": []})
            self.session.tick()
        return self.session.state

    def event(self, name: str, body: dict[str, object]) -> None:
        self.session.on_event({"event": name, name: body})

    def window(self, window: ProfilerWindow) -> None:
        """A window comes, and its trace is read."""
        self.session.read_window = lambda told, fd, done: done(told)
        self.session.on_event({"event": "window", "window": msgspec.to_builtins(window)})

    def journal(self, kind: str) -> list[dict[str, object]]:
        return [body for each, body in read_log(self.log.path) if each == kind]

    def traced(self, *, roots: list[str] | None = None, **changes: object) -> Stage:
        """From the first step on, until the traced steps have come."""
        self.event("anatomy", anatomy() if roots is None else anatomy(roots=roots))
        assert self.run(12) is State.TRACING
        self.agent.answer("trace")
        self.event("traced", traced(self.model) | changes)
        return self

    def measured(self) -> Stage:
        """Through the whole course, to the verdict."""
        self.enter().traced()
        assert self.run(24) is State.PROBING
        self.event("probed", probed(self.model))
        assert self.run(24) is State.JUDGED
        return self


def read_log(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Kind and body of every whole line; one that is cut is left out."""
    for line in path.read_bytes().splitlines():
        with suppress(ValueError):
            entry = msgspec.json.decode(line)
            yield entry["kind"], entry["body"]


def sample(number: int) -> HostSample:
    """The looks at a quiet job, two a second."""
    return host_sample(t_ns=number * SECOND_NS // 2)
