"""A process that plays an agent which means harm: `python tests/support/injected/hostile_agent.py KIND`.

A sidecar finds it as a preloaded agent. It says "up", then serves whoever connects.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from autobrrr import paths
from autobrrr.injected.wire import ring_layout
from autobrrr.injected.wire.ring_writer import sealed_memory
from autobrrr.machine.procfs import stat

STEER = "\x1b]0;TAKEN\x07\x1b[2J\x1b[31mRED\u202e\x9b31m\r\n"
PID = os.getpid()
EVENTS = (
    *("anatomy", "cost", "traced", "probed", "frames", "collectives", "window", "progress", "remedy_lost"),
    "other",
)
ODD_FACTS = {
    "steering": {"script": STEER + "train.py", "argv": [STEER], "python": STEER, "torch": STEER},
    "large": {"script": "S" * 400_000, "argv": ["b" * 1000] * 400},
    "numbers": {"train_tid": 2**70, "threads": -5, "rank": 2**62, "world_size": 10**18},
    "negative": {"pid": -1, "train_tid": -1},
}
ANATOMY = {
    "source": "optimizer",
    "optimizers": [STEER],
    "parameters": 10,
    "parameter_tensors": 3,
    "parameter_bytes": 40,
    "state_bytes": 80,
    "backwards_per_step": 1,
    "roots": [STEER + "Root"],
    "compiled": False,
    "loader_workers": None,
    "loader_prefetch": None,
    "notes": [STEER + " note"],
    "train_tid": PID,
    "attention": [STEER],
    "uneven": [STEER],
}


def frame(message: dict[str, object]) -> bytes:
    return raw(json.dumps({"v": 1, **message}).encode())


def raw(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


class Agent:
    """One connection."""

    def __init__(self, kind: str, link: socket.socket) -> None:
        self.kind, self.link, self.random = kind, link, random.Random(1)
        self.ring = sealed_memory(ring_layout.size_bytes())
        os.pwrite(self.ring, ring_layout.header(PID, ring_layout.CAPACITY), 0)

    def serve(self) -> None:
        facts = {
            "pid": PID,
            "python": "3.11",
            "torch": "2.13",
            "script": "train.py",
            "argv": ["train.py"],
            "train_tid": PID,
            "threads": 1,
            "method": "preload",
            **ODD_FACTS.get(self.kind, {}),
        }
        hello = frame({"event": "hello", "token": "x", "ring_fd": True, "facts": facts})
        socket.send_fds(self.link, [hello], [self.ring])
        for work in (self.step, self.speak):
            threading.Thread(target=self.quietly, args=(work,), daemon=True).start()
        self.quietly(self.answer)

    def quietly(self, work: object) -> None:
        with contextlib.suppress(OSError):
            work()  # type: ignore[operator]

    def step(self) -> None:
        t_ns = time.perf_counter_ns()
        for seq in range(10**9):
            t_ns += 3_000_000
            fields = [self.random.randrange(10**6) for _ in ring_layout.SAMPLED_FIELDS]
            body = ring_layout.SAMPLED.pack(*fields) + ring_layout.TAIL.pack(
                t_ns, t_ns + 2_900_000, 600, 0, 0, seq % 2, seq
            )
            os.pwrite(
                self.ring, body, ring_layout.offset_bytes(seq % ring_layout.CAPACITY, ring_layout.CAPACITY)
            )
            time.sleep(0.002)

    def speak(self) -> None:
        time.sleep(0.5)
        match self.kind:
            case "steering":
                for event in (
                    {"event": "anatomy", "anatomy": ANATOMY},
                    {"event": "progress", "activity": STEER + " activity"},
                    {"event": "remedy_lost", "token": 1, "remedy": STEER, "why": STEER},
                    {"event": STEER},
                ):
                    self.link.sendall(frame(event))
                time.sleep(2)
                self.link.sendall(frame({"event": "removed", "why": STEER + " why"}))
            case "fuzz":
                while True:
                    event = self.random.choice(EVENTS)
                    said = {name: self.odd() for name in (event, "activity", "why", "token")}
                    self.link.sendall(
                        frame({**said, "event": event, "fd": self.random.choice([True, None, 3])})
                    )
                    time.sleep(0.001)
            case "flood":
                while True:
                    self.link.sendall(frame({"event": "progress", "activity": "A" * 900_000}))
            case "removed":
                self.link.sendall(frame({"event": "removed", "why": STEER + "A" * 900_000}))
            case "not utf-8":
                self.link.sendall(raw(b'{"v":1,"event":"\xff\xfe"}'))
            case "deep":
                self.link.sendall(
                    raw(b'{"v":1,"event":"cost","cost":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
                )
            case "descriptors":
                null = os.open(os.devnull, os.O_RDONLY)
                message = frame({"event": "progress", "activity": "x", "fd": True})
                while True:
                    socket.send_fds(self.link, [message], [null] * 4)
                    time.sleep(0.001)
            case "active":
                for token in range(10**9):
                    self.link.sendall(frame({"event": "remedy_lost", "token": token, "why": "x" * 1000}))
                    time.sleep(0.001)

    def odd(self, depth: int = 0) -> object:
        names = ("status", "why", "remedy", "token", "points", "optimizers", "ns_per_step", STEER)
        match self.random.randrange(9):
            case 0:
                return None
            case 1:
                return True
            case 2:
                return self.random.choice([0, -1, 2**63, 2**80, 10**30])
            case 3:
                return self.random.random() * 10.0 ** self.random.randrange(-300, 300)
            case 4:
                return STEER
            case 5:
                return "x" * self.random.choice([1, 10, 5000])
            case 6:
                return [self.odd(depth + 1) for _ in range(3)] if depth < 4 else 1
            case 7:
                made = {self.random.choice(names): self.odd(depth + 1) for _ in range(4)}
                return made if depth < 4 else 2
        return float("nan")

    def answer(self) -> None:
        while len(head := self.link.recv(4, socket.MSG_WAITALL)) == 4:
            command = json.loads(self.link.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL))
            reply: dict[str, object] = {"reply": command["id"], "ok": True}
            if self.kind == "mute":
                continue
            if self.kind == "refusing":
                reply = {"reply": command["id"], "ok": False, "why": STEER}
            elif command["do"] == "facts":
                odd = self.kind == "fuzz"
                reply |= {"anatomy": self.odd() if odd else ANATOMY, "active": [self.odd()] if odd else []}
            elif command["do"] == "detach":
                reply |= {"left": [STEER, "y" * 3000] if self.kind == "fuzz" else []}
            self.link.sendall(frame(reply))


def main() -> None:
    seen = stat(PID)
    assert seen is not None
    runtime = paths.make_private(paths.runtime_dir())
    with socket.socket(socket.AF_UNIX) as door:
        os.chdir(runtime)  # an address has room for 107 bytes
        door.bind(f"agent-{PID}-{seen.start_ticks}.sock")
        door.listen(4)
        print("up", flush=True)
        while True:
            link, _ = door.accept()
            with link:
                Agent(sys.argv[1], link).serve()


main()
