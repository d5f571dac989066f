"""An agent that trains nothing: it speaks the agent's side of the link and writes a real ring.

`RingWriter` and `ScriptedAgent` need no thread and no clock; `FakeAgent` serves a connected socket;
run as a script it is a whole process that a sidecar finds as a preloaded agent:

    python tests/support/sessions/sidecar.py --step-ms 2
"""

import argparse
import json
import mmap
import os
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from autobrrr import paths
from autobrrr.agent.wire import framing, ring_layout
from autobrrr.machine.procfs import stat
from autobrrr.records import HostSample, JobFacts

MS = 1_000_000


@dataclass(kw_only=True)
class StepModel:
    """How a made-up training loop spends its steps; remedies divide the step time."""

    step_ns: int = 2 * MS
    data_wait: float = 0.0
    forward: float = 0.3
    backward: float = 0.4
    optimizer: float = 0.25
    kernels: float = 0.3  # share of forward, backward and optimizer in which kernels work
    batch: int = 16
    sampled_every: int = 4
    active: dict[str, float] = field(default_factory=lambda: {"optimizer.fused": 2.0})

    def phases_ns(self, step_ns: int) -> dict[str, int]:
        parts = {
            "data_wait": self.data_wait,
            "forward": self.forward,
            "backward": self.backward,
            "optimizer": self.optimizer,
        }
        return {name: int(part * step_ns) for name, part in parts.items()}


class RingWriter:
    """A real ring in a memfd, written as the agent writes it."""

    def __init__(self, capacity: int = ring_layout.CAPACITY) -> None:
        self.capacity = capacity
        self.fd = os.memfd_create("ring")
        os.ftruncate(self.fd, ring_layout.size_bytes(capacity))
        self._map = mmap.mmap(self.fd, ring_layout.size_bytes(capacity))
        self._map[: ring_layout.HEADER.size] = ring_layout.header(os.getpid(), capacity)
        self.seq = 0
        self.now_ns = 1_000_000_000

    def step(
        self,
        step_ns: int,
        *,
        flags: int = 0,
        arm: int = 0,
        own_ns: int = 600,
        device_ns: int = ring_layout.UNSTAMPED,
        **sampled: int,
    ) -> int:
        """One more step, right after the one before; returns its number."""
        at = ring_layout.offset_bytes(self.seq, self.capacity)
        if sampled:
            flags |= ring_layout.PHASES
            values = [sampled.get(name, -1) for name in ring_layout.SAMPLED_FIELDS]
            ring_layout.SAMPLED.pack_into(self._map, at, *values)
        start_ns = self.now_ns + own_ns
        self.now_ns = start_ns + step_ns
        tail = at + ring_layout.SAMPLED.size
        fields = (start_ns, self.now_ns, own_ns, device_ns, arm, flags, self.seq)
        ring_layout.TAIL.pack_into(self._map, tail, *fields)
        self.seq += 1
        return self.seq - 1

    def stamp(self, seq: int, device_ns: int) -> None:
        """The device has come to the end of a step."""
        at = ring_layout.offset_bytes(seq, self.capacity) + ring_layout.DEVICE_OFFSET
        ring_layout.DEVICE.pack_into(self._map, at, device_ns)

    def model_step(self, model: StepModel, *, flags: int = 0, arm: int = 0, speed: float = 1.0) -> int:
        """One step as the model has it, its phases sampled now and then."""
        step_ns = int(model.step_ns / speed)
        sampled = {}
        if self.seq % model.sampled_every == 0:
            sampled = {f"{name}_ns": ns for name, ns in model.phases_ns(step_ns).items()}
            sampled |= {"backwards": 1, "fires": 1, "samples": model.batch, "minor_faults": 0}
        return self.step(step_ns, flags=flags, arm=arm, **sampled)

    def close(self) -> None:
        self._map.close()
        os.close(self.fd)


class ScriptedAgent:
    """Takes commands down; the test answers them."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, dict[str, object]]] = []
        self._waiting: list[object] = []

    def command(self, do: str, on_reply: object, **fields: object) -> None:
        self.commands.append((do, fields))
        self._waiting.append(on_reply)

    @property
    def asked(self) -> list[str]:
        """Names of the commands so far."""
        return [do for do, _ in self.commands]

    def answer(self, do: str, ok: bool = True, **fields: object) -> None:
        """Reply to the oldest waiting command of this name."""
        index = next(i for i, (name, _) in enumerate(self.commands) if name == do and self._waiting[i])
        on_reply, self._waiting[index] = self._waiting[index], None
        on_reply({"ok": ok, **fields})  # type: ignore[operator]


def facts(pid: int | None = None, **changes: object) -> dict[str, object]:
    """`JobFacts` of a made-up job."""
    return {
        "pid": os.getpid() if pid is None else pid,
        "python": "3.11.7",
        "torch": "2.13.0",
        "script": "train.py",
        "argv": ["train.py"],
        "train_tid": os.getpid() if pid is None else pid,
        "threads": 1,
        "method": "preload",
        **changes,
    }


def job_facts(pid: int, **changes: object) -> JobFacts:
    """The same as a record."""
    return JobFacts(**facts(pid, **changes))  # type: ignore[arg-type]


def host_sample(**changes: object) -> HostSample:
    """A look at a job that has a core to itself."""
    quiet = dict.fromkeys(("run_delay_share", "steal_share", "children_cpu_share"), 0.0)
    usual = {"t_ns": 1, "cpu_share": 1.0, "rss_bytes": 1 << 30, "threads": 5, **quiet}
    return HostSample(**{**usual, **changes})  # type: ignore[arg-type]


def anatomy(**changes: object) -> dict[str, object]:
    """`Anatomy` of a made-up job."""
    return {
        "source": "optimizer",
        "optimizers": ["AdamW"],
        "parameters": 100_000,
        "parameter_tensors": 98,
        "parameter_bytes": 400_000,
        "state_bytes": 800_000,
        "backwards_per_step": 1,
        "roots": ["Net"],
        "compiled": False,
        "loader_workers": None,
        "loader_prefetch": None,
        **changes,
    }


def traced(model: StepModel, step_ns: int | None = None) -> dict[str, object]:
    """`TracedSteps` that fit the model."""
    step_ns = step_ns or model.step_ns
    phases = model.phases_ns(step_ns)
    kernels = {name: model.kernels * ns for name, ns in phases.items() if name != "data_wait"}
    kernel_ns = int(sum(kernels.values()))
    return {
        "status": "ok",
        "kernel_ns": [kernel_ns] * 6,
        "traced_step_ns": [2 * step_ns] * 6,
        "plain_step_ns": [step_ns] * 6,
        "operations": [400] * 6,
        "kernel_by_phase_ns": {"data_wait": 0.0, "other": 0.0, **kernels},
        "plain_by_phase_ns": {
            **{name: float(ns) for name, ns in phases.items()},
            "other": float(step_ns - sum(phases.values())),
        },
        "by_op": [{"op": "aten::addmm", "count": 40.0, "kernel_ns": float(kernel_ns)}],
        "op_cost_ns": 2000,
        "run_delay_share": 0.0,
    }


def probed(model: StepModel, step_ns: int | None = None, fixed: float = 0.9) -> dict[str, object]:
    """`ShadowProbe` that fits the model: `fixed` of the step does not grow with the batch."""
    step_ns = step_ns or model.step_ns
    points = []
    for factor in (0.25, 0.5, 1, 2):
        shadow_ns = int(step_ns * (fixed + factor * (1 - fixed)))
        points.append({"batch": int(model.batch * factor), "shadow_ns": [shadow_ns] * 6, "minor_faults": 0})
    return {"status": "ok", "batch": model.batch, "points": points, "operations": 400}


class FakeAgent:
    """The agent's side of a connected link, in real time: trains a `StepModel`, obeys commands."""

    def __init__(self, link: socket.socket, model: StepModel) -> None:
        self.link, self.model = link, model
        self.ring = RingWriter()
        self.active: dict[int, tuple[str, dict[str, object]]] = {}
        self.arm = 0
        self.commands: list[str] = []
        self._events: list[tuple[int, dict[str, object]]] = []  # due at this step
        self._tokens = 0
        self._went_ns = time.perf_counter_ns()
        self._incoming = bytearray()

    def serve(self) -> str:
        """Train and obey until the link is gone or a detach comes; returns which."""
        hello = framing.encode({"event": "hello", "ring_fd": True, "facts": facts()})
        socket.send_fds(self.link, [hello], [self.ring.fd])
        self._later(3, {"event": "anatomy", "anatomy": anatomy()})
        self._later(5, {"event": "cost", "cost": cost()})
        try:
            while True:
                self._train()
                if select.select([self.link], [], [], 0.005)[0] and not self._obey():
                    return "detached"
        except (framing.Closed, framing.BadFrame, OSError):
            return "link lost"
        finally:
            self.ring.close()
            self.link.close()

    def _speed(self) -> float:
        speed = 1.0
        for name, _ in self.active.values():
            speed *= self.model.active.get(name, 1.0)
        return speed

    def _train(self) -> None:
        now_ns = time.perf_counter_ns()
        step_ns = int(self.model.step_ns / self._speed())
        while self._went_ns + step_ns <= now_ns:
            self._went_ns += step_ns
            self.ring.now_ns = self._went_ns - step_ns
            self.ring.model_step(self.model, arm=self.arm, speed=self._speed())
            due = [event for at, event in self._events if at <= self.ring.seq]
            self._events = [(at, event) for at, event in self._events if at > self.ring.seq]
            for event in due:
                framing.send(self.link, event)

    def _later(self, steps: int, event: dict[str, object]) -> None:
        self._events.append((self.ring.seq + steps, event))

    def _obey(self) -> bool:
        """Read one command and do it; false after a detach."""
        message = framing.receive(self.link)
        do, number = str(message.get("do")), message.get("id")
        self.commands.append(do)
        step_ns = int(self.model.step_ns / self._speed())
        reply: dict[str, object] = {"reply": number, "ok": True}
        if do == "trace":
            self._later(12, {"event": "traced", "traced": traced(self.model, step_ns)})
            if message.get("probe") is not False:
                self._later(38, {"event": "probed", "probed": probed(self.model, step_ns)})
        elif do == "frames":
            self._later(30, {"event": "frames", "frames": {"samples": 0, "places": []}})
        elif do == "facts":
            known = {"class": "rounding", "reach": "live"}
            on = [{**known, "token": t, "remedy": r, "options": o} for t, (r, o) in self.active.items()]
            reply |= {"facts": facts(), "anatomy": None, "active": on}
        elif do == "apply" and message.get("remedy") not in self.model.active:
            reply = {"reply": number, "ok": False, "why": "refused: it does not fit this job"}
        elif do == "apply":
            self._tokens += 1
            self.arm += 1
            self.active[self._tokens] = (str(message["remedy"]), dict(message["options"]))  # type: ignore[call-overload]
            reply |= {"token": self._tokens, "arm": self.arm, "seq": self.ring.seq, "class": "rounding"}
        elif do == "undo":
            self.arm += 1
            self.active.pop(int(str(message["token"])))
            reply |= {"arm": self.arm, "seq": self.ring.seq}
        elif do == "detach":
            reply |= {"left": []}
        else:
            reply = {"reply": number, "ok": False, "why": f"unknown command {do}"}
        framing.send(self.link, reply)
        return do != "detach"


def cost() -> dict[str, object]:
    """`AgentCost` of the made-up agent."""
    return {"ns_per_step": 1000.0}


def raw_frame(body: bytes) -> bytes:
    """A frame with a true length and any body."""
    return struct.pack(">I", len(body)) + body


def main() -> None:
    """A process with a preloaded agent; writes one line of JSON for each link that ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--step-ms", type=float, default=2.0)
    parser.add_argument("--for-s", type=float, default=120.0)
    args = parser.parse_args()
    me = stat(os.getpid())
    folder = paths.runtime_dir()
    name = folder / f"agent-{os.getpid()}-{me.start_ticks}.sock"
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(folder)  # an address has room for 107 bytes
    listener.bind(name.name)
    listener.listen(1)
    listener.settimeout(args.for_s)
    print("training", flush=True)
    try:
        while True:
            link, _ = listener.accept()
            agent = FakeAgent(link, StepModel(step_ns=int(args.step_ms * MS)))
            ended = agent.serve()
            print(json.dumps({"ended": ended, "commands": agent.commands}), flush=True)
    except TimeoutError:
        pass
    finally:
        name.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
