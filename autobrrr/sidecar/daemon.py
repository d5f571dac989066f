"""The sidecar of one job: enter, build the session and its doors, serve in one event loop, clean up.

In: the endpoint of a job, and options. Out: nothing but what clients are sent and the session log. The loop
sleeps in asyncio's; it looks ten times a second while somebody listens or a measurement is under way, five
times otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from autobrrr import paths
from autobrrr.attach import job_roles
from autobrrr.attach.enter import enter
from autobrrr.attach.ptrace import kept_tracer
from autobrrr.errors import AutobrrrError
from autobrrr.machine import control_groups
from autobrrr.machine.device_poller import Poller
from autobrrr.machine.host_sampler import HostDevice
from autobrrr.machine.nvml import NvmlDevice
from autobrrr.machine.processors import fault_cost_ns, multiplies_bf16, usable_cpus
from autobrrr.machine.procfs import tid_outside
from autobrrr.sidecar.process.session_options import SessionOptions, State
from autobrrr.sidecar.process.step_replayer import StepReplayer
from autobrrr.sidecar.published import Figure, Publisher, published
from autobrrr.sidecar.requests import Service
from autobrrr.sidecar.session.rank_turn import RankLock
from autobrrr.sidecar.session.ring_reader import RingReader
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.session.session_log import SessionLog, log_path
from autobrrr.sidecar.session.window_reader import window_reader
from autobrrr.sidecar.sockets.session_socket import SessionSocket, is_alive, sweep
from autobrrr.sidecar.sockets.socket_frames import AgentLink, ClientConnection
from autobrrr.sidecar.tuning.live_bench import check, tune
from autobrrr.sidecar.tuning.tuning_thread import TuningThread

BUSY_S = 0.1
IDLE_S = 0.2
GOODBYE_S = 1.0  # for clients to read what is left
GOODBYE_EVERY_S = 0.02
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True, kw_only=True)
class EventLoop:
    """Runs until the session has ended and everybody has been told. A fault in what it calls ends it.

    Args:
        publish: Called at every tick: tells other programs what is new.
    """

    endpoint: SessionSocket
    session: Session
    service: Service
    agent: AgentLink | None
    loop: asyncio.AbstractEventLoop
    publish: Callable[[], object]

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until the end; `ready` is told once clients can come."""
        self.loop.set_exception_handler(self._failed)
        listener = self.endpoint.listen()
        self.loop.add_reader(listener, self._accept)
        if self.agent is not None:
            self.loop.add_reader(self.agent.wire.link, self._agent_ready, self.agent)
        ready()
        self.loop.run_until_complete(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        while self.session.state is not State.ENDED:
            self._tick()
            idle = self.session.state is State.JUDGED and not self.service.watched
            await asyncio.sleep(IDLE_S if idle else BUSY_S)
        self.loop.remove_reader(listener)
        self.endpoint.deafen()
        self.service.end()
        deadline_s = time.monotonic() + GOODBYE_S
        while self.service.clients and time.monotonic() < deadline_s:
            self._flush()
            self._drop(self.service.free())
            await asyncio.sleep(GOODBYE_EVERY_S)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        loop.default_exception_handler(context)
        loop.stop()

    def _tick(self) -> None:
        try:
            self.session.tick()
        except Exception as error:  # noqa: BLE001 - clients must hear how it ended, whatever the figures were
            traceback.print_exc()
            self.session.fail(error)
        self.publish()
        self._flush()
        self._drop(self.service.tick())

    def _flush(self) -> None:
        """What a socket did not take at once goes out now, as far as it takes more."""
        self.service.flush()
        if self.agent is not None:
            self.agent.flush()

    def _accept(self) -> None:
        link = self.endpoint.accept()
        if link is not None:
            self.loop.add_reader(link, self._client_ready, self.service.join(link))

    def _client_ready(self, client: ClientConnection) -> None:
        if not client.gone:
            self.service.readable(client)
        self._drop(self.service.free())

    def _agent_ready(self, agent: AgentLink) -> None:
        """Whatever an agent says, it costs its own link at most."""
        try:
            for event in () if agent.lost else agent.read():
                self.session.on_event(event)
        except Exception as error:  # noqa: BLE001 - it lives in somebody else's process
            traceback.print_exc()
            agent.lose(f"nothing can be made of what the agent says: {type(error).__name__}: {error}")
        if agent.lost:
            self.loop.remove_reader(agent.wire.link)
            self.session.link_lost(agent.why)
            self.session.tick()

    def _drop(self, clients: list[ClientConnection]) -> None:
        for client in clients:
            self.loop.remove_reader(client.wire.link)
            client.wire.close()


NICE = 5  # training comes first
TUNER_S = 5.0


def serve(
    endpoint: SessionSocket,
    options: SessionOptions,
    *,
    wait: Callable[[str], None],
    ready: Callable[[], None],
) -> None:
    """Run the session of one job from attach to its end.

    Args:
        wait: Tells the starter why attaching takes long; what it raises ends the session.
        ready: Tells the starter that the session is there; likewise.

    Raises:
        AutobrrrError: the job can't be attached to.
    """
    target = endpoint.target
    sweep(endpoint.folder)
    caught: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: caught.append(number))
    device = HostDevice(target.pid, beside=partial(job_roles.ranks_beside, target.pid))
    log = SessionLog(log_path(target.pid, paths.state_dir(), time.time()))
    loop = asyncio.new_event_loop()
    calls = loop.call_soon_threadsafe  # work for the loop's thread, handed in by others
    session = Session(
        target.pid,
        options,
        device=device,
        journal=log,
        alive=lambda: is_alive(target),
        cores=usable_cpus(target.pid),
        ranks_here=job_roles.size_of(target.pid).here,
        oom_kills=control_groups.oom_counter(target.pid),
    )
    tuning = TuningThread(session, calls, tune, check)
    session.read_window = window_reader(calls)
    session.replay = replayer = StepReplayer(target.pid, calls)
    replayer.drain = session.course.drain
    session.stop_replay, session.course.expect_replay = replayer.stop, replayer.expect
    session.course.rest_replay = replayer.rest
    job = job_roles.job_of(target.pid)
    if job is not None:
        session.findings.turn = RankLock(endpoint.folder, job)
    findings = session.findings
    findings.peaks_folder = paths.cache_dir()
    findings.fault_ns, findings.bf16 = fault_cost_ns(), multiplies_bf16()
    gpu = findings.gpu = Poller(
        NvmlDevice(
            target.pid,
            lambda: findings.facts is not None and findings.facts.on_cuda,
            named=lambda: [] if findings.anatomy is None else findings.anatomy.gpu_uuids,
        ),
        resting=lambda: session.state is State.TUNING,
    )
    service = Service(session, tuning, log, time.monotonic_ns)

    def figures() -> list[Figure]:
        return published(session.snapshot(), tuning.tuned)

    def on_wait(text: str) -> None:
        if caught:
            raise AutobrrrError("interrupted while attaching; nothing was changed")
        wait(text)

    told = Publisher(options, lambda text: calls(partial(session.note, text)))
    service.metrics = told.url
    agent = _enter(target.pid, options, session, device, on_wait, socket_folder=str(endpoint.folder))
    for number in SIGNALS:  # they end the session in order
        loop.add_signal_handler(number, session.detach)
    if caught:
        session.detach()
    serving = EventLoop(
        endpoint=endpoint,
        session=session,
        service=service,
        agent=agent,
        loop=loop,
        publish=lambda: told.look(time.monotonic_ns(), figures),
    )
    try:
        with contextlib.suppress(OSError):
            os.nice(NICE)  # now that attaching, which must be quick, is done
        gpu.start()  # from here on, so that its thread is as modest
        service.expect_owner()
        serving.run(ready)
    finally:
        # Whatever went wrong: this process ends, and once its link is closed the agent takes everything off.
        tuning.cancel()
        tuning.join(TUNER_S)
        told.close(None if session.state is not State.ENDED else figures)
        session.findings.turn.give()
        gpu.close()


def _enter(
    pid: int,
    options: SessionOptions,
    session: Session,
    device: HostDevice,
    on_wait: Callable[[str], None],
    *,
    socket_folder: str,
) -> AgentLink | None:
    """Go into the target; None with `--outside`."""
    if options.outside:
        session.entered_outside()
        return None

    entered = enter(pid, readonly=options.readonly, socket_folder=socket_folder, on_wait=on_wait)
    kept_tracer.let_go()
    ring = RingReader(entered.ring_fd)
    os.close(entered.ring_fd)
    agent = AgentLink(entered.socket)
    same_numbers = entered.facts.pid == pid  # else it lives in a pid namespace of its own

    def watch_thread(tid: int) -> None:
        device.watch_thread(tid if same_numbers else tid_outside(pid, tid) or pid)

    session.watch_thread = watch_thread
    watch_thread(entered.facts.train_tid)
    session.entered(agent, ring, entered.facts, entered.attach)
    return agent
