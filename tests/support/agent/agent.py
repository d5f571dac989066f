"""The agent in a real process, without an injection: the job starts it itself, the test is its sidecar.

`Peer` listens, takes the ring, gives commands and collects events. `run_job` starts a script that
may call `agent.begin()` (see `agent_job.py`).
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autobrrr.agent.wire import framing, ring_layout
from support.processes import warm_python

TESTS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Step:
    """One record of the ring."""

    seq: int
    start_ns: int
    end_ns: int
    own_ns: int
    device_ns: int
    arm: int
    flags: int
    sampled: dict[str, int]

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def read_ring(memory: mmap.mmap | bytes) -> list[Step]:
    """All valid records, in order."""
    steps = []
    for slot in range(ring_layout.CAPACITY):
        at = ring_layout.HEADER_BYTES + slot * ring_layout.RECORD_BYTES
        tail = dict(
            zip(
                ring_layout.TAIL_FIELDS,
                ring_layout.TAIL.unpack_from(memory, at + ring_layout.SAMPLED.size),
                strict=True,
            )
        )
        if tail["end_ns"] == 0:
            continue
        sampled = dict(
            zip(ring_layout.SAMPLED_FIELDS, ring_layout.SAMPLED.unpack_from(memory, at), strict=True)
        )
        steps.append(Step(**tail, sampled=sampled))
    return sorted(steps, key=lambda step: step.seq)


class Peer:
    """The sidecar's side of one agent link."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        link.settimeout(60)
        self.events: list[dict[str, object]] = []
        self._next = 1
        self.memory: mmap.mmap | None = None

    @classmethod
    def accept(cls, server: socket.socket) -> Peer:
        server.settimeout(60)
        link, _ = server.accept()
        peer = cls(link)
        peer.take_hello()
        return peer

    @classmethod
    def connect(cls, path: str) -> Peer:
        link = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 60
        while True:
            try:
                link.connect(path)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        peer = cls(link)
        peer.take_hello()
        return peer

    def take_hello(self) -> None:
        first, fds, _, _ = socket.recv_fds(self.link, 4, 4)
        while len(first) < 4:
            first += self.link.recv(4 - len(first))
        length = int.from_bytes(first, "big")
        body = b""
        while len(body) < length:
            body += self.link.recv(length - len(body))
        self.hello = framing.decode(body)
        self.memory = mmap.mmap(fds[0], ring_layout.size_bytes(), prot=mmap.PROT_READ)
        for fd in fds:
            os.close(fd)

    def steps(self) -> list[Step]:
        """Everything written before this call; the job goes on writing while it is read."""
        before = read_ring(self.memory[:])
        return [step for step in read_ring(self.memory[:]) if before and step.seq <= before[-1].seq]

    def receive(self) -> dict[str, object]:
        return framing.receive(self.link)

    def ask(self, do: str, **fields: object) -> dict[str, object]:
        """Send a command; its reply. Events that come first are kept."""
        number = self._next
        self._next += 1
        framing.send(self.link, {"do": do, "id": number, **fields})
        while True:
            message = self.receive()
            if message.get("reply") == number:
                return message
            self.events.append(message)

    def event(self, name: str) -> dict[str, object]:
        """The next event of this name, also one that has come already."""
        while True:
            for kept in self.events:
                if kept.get("event") == name:
                    self.events.remove(kept)
                    return kept
            self.events.append(self.receive())

    def wait_steps(self, count: int, timeout_s: float = 60) -> list[Step]:
        """Until so many steps are in the ring."""
        deadline = time.monotonic() + timeout_s
        while True:
            steps = self.steps()
            if steps and steps[-1].seq + 1 >= count:
                return steps
            assert time.monotonic() < deadline, f"{len(steps)} steps"
            time.sleep(0.02)

    def close(self) -> None:
        self.link.close()


# After a script: what the test tells the job to do next, in one namespace.
SERVES = """
import json, sys, traceback
while line := sys.stdin.readline():
    try:
        exec(json.loads(line), globals())
        print("done", flush=True)
    except BaseException:
        traceback.print_exc()
        print("failed", flush=True)
"""


class AgentJob:
    """A child process that runs a script which starts the agent itself."""

    def __init__(
        self, script: str, folder: Path, *, python: str = sys.executable, standin: bool = False
    ) -> None:
        self.path = str(folder / "sidecar.sock")  # no name that an agent which leaves would clear away
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.server.listen(8)
        path = [str(TESTS), str(TESTS.parent)]
        if standin:
            path.insert(0, str(TESTS / "support" / "standin"))
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "AGENT_LINK": self.path,
            "AGENT_LISTEN": str(folder / "listen.sock"),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.process = warm_python.start([python, "-c", script], env, stdin=subprocess.PIPE)

    def peer(self) -> Peer:
        return Peer.accept(self.server)

    def tell(self, line: str = "go") -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    @contextlib.contextmanager
    def session(self, code: str) -> Iterator[Peer]:
        """The sidecar of a session that this code begins, in a job whose script ends with `SERVES`."""
        self.tell(json.dumps(code))
        peer = self.peer()
        try:
            yield peer
        finally:
            peer.close()
            self.said = self.done()

    def done(self) -> str:
        """What it prints until it has done what it was told; asserts that it could."""
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            if line in ("done\n", "failed\n"):
                assert line == "done\n", said
                return said
            said += line
        raise AssertionError(said)

    def until(self, line: str) -> None:
        """Read what it prints up to this line."""
        assert self.process.stdout is not None
        for said in self.process.stdout:
            if said.strip() == line:
                return
        raise AssertionError(f"it ended before {line!r}")

    def output(self) -> str:
        """What it printed; asserts that it ended well."""
        out, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, out
        return out

    def __enter__(self) -> AgentJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
