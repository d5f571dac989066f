"""A service with its session, its clients, and a tuner and a guard that are played."""

from __future__ import annotations

import socket
from pathlib import Path

from autobrrr.agent.wire.framing import encode, receive
from autobrrr.machine.file_readiness import is_readable
from autobrrr.records import Attach, Diagnosis, Reverted, Trial, TuneProgress
from autobrrr.records import Tuning as TuningResult
from autobrrr.records.session_requests import TuneRequest
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.requests import Service
from autobrrr.sidecar.session.ring_reader import RingReader
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.session.session_log import SessionLog
from autobrrr.sidecar.sockets.socket_frames import ClientConnection
from autobrrr.sidecar.tuning.live_bench import LiveBench, Tell
from autobrrr.sidecar.tuning.tuning_thread import TuningThread
from support.machines.devices import AbsentDevice
from support.sessions.sidecar import RingWriter, ScriptedAgent, job_facts

SECOND_NS = 1_000_000_000


class Guest:
    """The client's end of one connection."""

    def __init__(self, office: Office) -> None:
        self.office = office
        ours, self.link = socket.socketpair()
        self.link.settimeout(2)
        self.client: ClientConnection = office.service.join(ours)

    def ask(self, do: object, **fields: object) -> dict[str, object]:
        self.send(encode({"do": do, "id": 5, **fields}))
        return self.hear()

    def send(self, raw: bytes) -> None:
        self.link.sendall(raw)
        self.office.service.readable(self.client)

    def hear(self) -> dict[str, object]:
        return receive(self.link)

    def hang_up(self) -> list[ClientConnection]:
        """The connections that are free then."""
        self.link.close()
        self.office.service.readable(self.client)
        return self.office.service.free()

    def hears_nothing(self) -> bool:
        return not is_readable(self.link)

    def error(self) -> dict[str, object]:
        answer = self.hear()
        assert answer["ok"] is False
        assert isinstance(answer["error"], dict)
        return answer["error"]


class Office:
    """A service with its session; calls for the loop's thread are run by the test."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.now_ns = 0
        self.calls: list[object] = []
        self.agent = ScriptedAgent()
        self.writer = RingWriter(64)
        log = SessionLog(folder / "session.jsonl")
        self.session = Session(
            42,
            SessionOptions(**options),  # type: ignore[arg-type]
            device=AbsentDevice(),
            journal=log,
            alive=lambda: True,
            clock_ns=lambda: self.now_ns,
            own_cpu_ns=lambda: 0,
        )
        self.session.entered(
            self.agent,
            RingReader(self.writer.fd),
            job_facts(42),
            Attach(method="ptrace", latency_ns=1, pause_ns=1),
        )
        self.tuner = FakeTuner()
        self.guard = FakeGuard()
        clock = lambda: self.now_ns  # noqa: E731
        self.tuning = TuningThread(self.session, self.calls.append, self.tuner, self.guard, clock)
        self.service = Service(self.session, self.tuning, log, lambda: self.now_ns)

    def later(self, seconds: float) -> list[ClientConnection]:
        self.now_ns += int(seconds * SECOND_NS)
        return self.service.tick()

    def run_calls(self) -> None:
        while self.calls:
            self.calls.pop(0)()  # type: ignore[operator]


class FakeTuner:
    """Ends at once, with a result or an error."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.request: TuneRequest | None = None
        self.bench: LiveBench | None = None

    def __call__(self, bench: LiveBench, request: TuneRequest, _: Diagnosis, tell: Tell) -> TuningResult:
        self.request, self.bench = request, bench
        if self.error is not None:
            raise self.error
        tell(TuneProgress(stage="trial", text="trying optimizer.fused"))
        tell(TRIAL)
        return RESULT


class FakeGuard:
    """Compares nothing: undoes what the test says."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.undoes: list[Reverted] = []

    def __call__(self, bench: LiveBench, step_ns: float) -> list[Reverted]:
        self.asked.append(step_ns)
        return self.undoes


TRIAL = Trial(
    remedy="optimizer.fused",
    options={},
    outcome="kept",
    why="faster",
    class_="rounding",
    predicted=1.2,
    achieved=1.3,
    interval=[1.2, 1.4],
    blocks=8,
    steps=80,
    duration_ns=5,
)
RESULT = TuningResult(
    objective="step_ns",
    baseline=2e6,
    best=1e6,
    speedup=2.0,
    interval=[1.9, 2.1],
    class_="rounding",
    kept=["optimizer.fused"],
    reverted=[],
    trials=[TRIAL],
    recipe=None,
)
