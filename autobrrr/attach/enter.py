"""The whole way in: checks, bundle, injection, and the link to the agent that came up.

In goes a pid; out comes a connected socket, the ring's descriptor and what the agent said of the
job. The private folder is gone when this returns, however it returns.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from autobrrr import paths
from autobrrr.agent.wire import framing
from autobrrr.attach import agent_wait, load_failure, triage
from autobrrr.attach.bundle import code_bundle
from autobrrr.attach.job_python import job_python
from autobrrr.attach.preload import preloaded_agent
from autobrrr.attach.ptrace.injector import FAILED, TAKEN, InjectionWay, inject
from autobrrr.attach.target_folder import TargetFolder, sweep
from autobrrr.errors import CannotAttach
from autobrrr.folders import peer_uid
from autobrrr.machine import same_program
from autobrrr.machine.file_readiness import is_readable
from autobrrr.machine.same_program import Program
from autobrrr.readable import fields, spoken
from autobrrr.records import Attach, JobFacts

HELLO_TIMEOUT_S = 20.0
LAST_WORDS_S = 1.0
HELLO_FAILS = (framing.BadFrame, framing.Closed, OSError)
MOST_COMMAND_CHARACTERS = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConnection:
    """A connected agent. The caller closes `socket` and `ring_fd`."""

    socket: socket.socket
    ring_fd: int
    facts: JobFacts
    attach: Attach


def enter(
    pid: int,
    *,
    readonly: bool = False,
    socket_folder: str | None = None,
    on_wait: Callable[[str], object] | None = None,
    entries: tuple[code_bundle.Entry, ...] | None = None,
) -> AgentConnection:
    """Attach to a training process.

    Args:
        pid: As this process's /proc names it.
        readonly: Told to the agent: no traced steps, no probe, no remedies.
        socket_folder: Where clients find this session: said to whoever attaches meanwhile, from elsewhere.
        on_wait: Takes lines about what is waited for.
        entries: The bundle to ship; the agent where None.

    Raises:
        CannotAttach: it was not changed, or what was injected will do nothing.
        TargetGone: it ended, or never was.
    """
    began_ns = time.monotonic_ns()
    link = preloaded_agent.connect(pid)
    if link is not None:
        try:
            ring_fd, facts = hello_from(link)
        except HELLO_FAILS as error:
            raise CannotAttach(
                f"the preloaded agent of process {pid} did not answer: {error or 'it closed the connection'}",
                "detach the session that has it",
            ) from None
        came = Attach(method="preload", latency_ns=time.monotonic_ns() - began_ns, pause_ns=0)
        return AgentConnection(socket=link, ring_fd=ring_fd, facts=facts, attach=came)
    program, version = triage.require(triage.TriageCase(pid=pid))
    for sees in (pid, os.getpid()):
        sweep(sees)
    for runtime in paths.runtime_dirs():
        preloaded_agent.sweep(runtime)
    token = secrets.token_hex(8)
    with contextlib.closing(TargetFolder(pid)) as place:
        boot = {
            "token": token,
            "link": place.socket_path,
            "method": "ptrace",
            "readonly": readonly,
            "socket_folder": socket_folder,
        }
        shipped = dict(code_bundle.files(entries))
        beside = job_python(pid) if version != sys.version_info[:2] else None
        if beside is not None:
            shipped["code"] = code_bundle.compiled_by(beside, shipped["source"]) or shipped["code"]
        for name, data in shipped.items():
            place.write(name, data)
        place.write("boot.json", json.dumps(boot).encode())
        pauses_ns: list[int] = []

        def ask(way: InjectionWay) -> None:
            """Load the agent. A call that fires when the folder is gone does nothing."""
            stub = code_bundle.stub(place.path)
            taken = inject(pid, stub, folder=place.path, way=way, program=program)
            pauses_ns.append(taken.pause_ns)

        def beside_the_main_thread() -> str:
            """The main thread sleeps on: load the agent in a thread of its own; or why that can't be."""
            try:
                ask(InjectionWay.NEW_THREAD)
            except CannotAttach as error:
                return error.message
            return ""

        ask(InjectionWay.PENDING_CALL)
        link, ring_fd, facts = _receive(place, pid, program, beside_the_main_thread, on_wait)
    latency_ns = time.monotonic_ns() - began_ns
    came = Attach(method=facts.method, latency_ns=latency_ns, pause_ns=sum(pauses_ns))
    return AgentConnection(socket=link, ring_fd=ring_fd, facts=facts, attach=came)


def _receive(
    place: TargetFolder,
    pid: int,
    program: Program,
    go_beside: Callable[[], str],
    on_wait: Callable[[str], object] | None,
) -> tuple[socket.socket, int, JobFacts]:
    def arrived(timeout_s: float) -> bool:
        if is_readable(place.door, timeout_s):
            return True
        _raise_complaint(place, pid)
        return False

    def taken() -> bool:
        return place.said(TAKEN) is not None

    agent_wait.for_agent(pid, arrived, taken, program=program, go_beside=go_beside, on_wait=on_wait)
    link, _ = place.door.accept()
    try:
        return link, *hello_from(link)
    except HELLO_FAILS as error:
        _hear_out(place, pid, program)
        raise CannotAttach(
            f"the agent in process {pid} did not come up: {error or 'it closed the connection'}",
            f"autobrrr doctor {pid} says more; autobrrr attach --outside {pid} watches without an agent",
        ) from None


def _raise_complaint(place: TargetFolder, pid: int) -> None:
    """Raise what the injected code says of its failure, where it has failed."""
    said = place.said(FAILED)
    if said is not None:
        raise load_failure.error_of(load_failure.parse(said), pid)


def _hear_out(place: TargetFolder, pid: int, program: Program) -> None:
    """The link has closed: give the cause, which comes just after it, a moment."""
    end_s = time.monotonic() + LAST_WORDS_S
    while time.monotonic() < end_s:
        same_program.require(pid, program)
        _raise_complaint(place, pid)
        time.sleep(agent_wait.LOOK_S)


def hello_from(link: socket.socket) -> tuple[int, JobFacts]:
    """Receive the agent's first frame: the ring's descriptor, and what it says of the job.

    Raises:
        BadFrame: another frame, or no descriptor; the link is closed then.
        Closed, OSError: the agent went away, or was silent for too long; likewise.
    """
    fds: list[int] = []
    try:
        if peer_uid(link) not in (os.geteuid(), 0):
            raise framing.BadFrame(f"uid {peer_uid(link)} answers there")
        link.settimeout(HELLO_TIMEOUT_S)
        # For all of it: it may come byte by byte.
        slow = threading.Timer(2 * HELLO_TIMEOUT_S, link.shutdown, (socket.SHUT_RDWR,))
        slow.start()
        try:
            begun, fds, _, _ = socket.recv_fds(link, 4, 1)
            hello = fields(framing.receive(link, begun), spoken)
        finally:
            slow.cancel()
        if hello.get("event") != "hello" or len(fds) != 1:
            raise framing.BadFrame(f"the first frame is {hello.get('event')!r} with {len(fds)} descriptors")
        facts = _bounded(msgspec.convert(hello.get("facts"), JobFacts))
    except BaseException as error:
        for fd in fds:
            os.close(fd)
        link.close()
        if isinstance(error, msgspec.ValidationError):
            raise framing.BadFrame(f"facts: {error}") from None
        raise
    link.settimeout(None)
    os.set_inheritable(fds[0], False)
    return fds[0], facts


def _bounded(facts: JobFacts) -> JobFacts:
    """With so much of the command as every snapshot can carry."""
    kept, left = [], MOST_COMMAND_CHARACTERS
    for word in facts.argv:
        left -= len(word) + 1
        if left < 0:
            break
        kept.append(word)
    return msgspec.structs.replace(facts, argv=kept)
