"""The sidecar of one job: enter, build the session and its doors, serve, clean up.

In: the endpoint of a job, and options. Out: nothing but what clients are sent and the session log.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from types import FrameType

from autobrrr import paths
from autobrrr.attach import job_roles
from autobrrr.attach.enter import enter
from autobrrr.attach.ptrace import kept_tracer
from autobrrr.errors import AutobrrrError
from autobrrr.machine import control_groups
from autobrrr.machine.device_poller import Poller
from autobrrr.machine.host_sampler import HostDevice
from autobrrr.machine.nvml import NvmlDevice
from autobrrr.machine.processors import usable_cpus
from autobrrr.machine.procfs import tid_outside
from autobrrr.records import Attach
from autobrrr.records.wire_answers import ActivityLine
from autobrrr.sidecar.event_loop import SIGNALS, EventLoop, LoopCalls
from autobrrr.sidecar.process.rank_lock import RankLock
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.process.step_replayer import StepReplayer
from autobrrr.sidecar.published.published_figures import Published, published
from autobrrr.sidecar.published.publisher import Publisher
from autobrrr.sidecar.requests import Service
from autobrrr.sidecar.session.calibrations import Calibrations
from autobrrr.sidecar.session.ring_reader import RingReader
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.session.session_log import SessionLog, log_path
from autobrrr.sidecar.session.session_states import State
from autobrrr.sidecar.session.window_reader import WindowReader
from autobrrr.sidecar.sockets.agent_link import AgentLink
from autobrrr.sidecar.sockets.session_socket import SessionSocket, is_alive, sweep
from autobrrr.sidecar.tuning.live_tuner import check, tune
from autobrrr.sidecar.tuning.tuning_thread import TuningThread

NICE = 5  # training comes first
TUNER_S = 5.0


def serve(
    endpoint: SessionSocket,
    options: SessionOptions,
    *,
    owned: bool,
    wait: Callable[[str], None],
    ready: Callable[[], None],
) -> None:
    """Run the session of one job from attach to its end.

    Args:
        owned: It ends unless a client soon asks to own it.
        wait: Tells the starter why attaching takes long; what it raises ends the session.
        ready: Tells the starter that the session is there; likewise.

    Raises:
        AutobrrrError: the job can't be attached to.
    """
    target = endpoint.target
    sweep(endpoint.folder)
    signals = _Signals()
    device = HostDevice(target.pid, beside=partial(job_roles.ranks_beside, target.pid))
    log = SessionLog(log_path(target.pid, paths.state_dir(), time.time()))
    calls = LoopCalls()
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
    session.read_window = WindowReader(calls)
    session.replay = replayer = StepReplayer(target.pid, calls)
    session.stop_replay, session.course.expect_replay = replayer.stop, replayer.expect
    job = job_roles.job_of(target.pid)
    if job is not None:
        session.intake.turn = RankLock(endpoint.folder, job)
    session.findings.calibrations = Calibrations(paths.cache_dir())
    gpu = session.findings.gpu = Poller(
        NvmlDevice(target.pid, lambda: _uses_gpu(session), named=lambda: _gpu_uuids(session)),
        resting=lambda: session.state is State.TUNING,
    )
    service = Service(session, tuning, log, time.monotonic_ns)
    session.say = service.say

    def on_wait(text: str) -> None:
        if signals.caught is not None:
            raise AutobrrrError("interrupted while attaching; nothing was changed")
        wait(text)

    def figures() -> Published:
        return published(session.snapshot(), tuning.tuned)

    def note(text: str) -> None:
        line = ActivityLine(text=text)
        log.write("note", line)  # nobody may be listening
        service.say(line)

    told = Publisher(options, lambda text: calls(partial(note, text)))
    service.metrics = told.url
    try:
        agent = _enter(target.pid, options, session, device, on_wait, socket_folder=str(endpoint.folder))
    except BaseException:
        told.close()
        raise
    loop = EventLoop(
        endpoint=endpoint,
        session=session,
        service=service,
        agent=agent,
        alive=lambda: is_alive(target),
        stopped=lambda: signals.caught is not None,
        calls=calls,
        publish=lambda: told.look(time.monotonic_ns(), figures),
    )
    try:
        _be_modest()
        gpu.start()  # from here on, so that its thread is as modest
        if owned:
            service.expect_owner()
        ready()
        loop.run()
    finally:
        # Whatever went wrong: once the link is closed the agent takes everything off.
        tuning.cancel()
        tuning.join(TUNER_S)
        told.close(None if session.state is not State.ENDED else figures)
        session.intake.turn.give()
        gpu.close()
        signals.restore()
        loop.close()
        log.close()


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
        session.entered_outside(Attach(method="outside", latency_ns=None, pause_ns=0))
        return None

    entered = enter(pid, readonly=options.readonly, socket_folder=socket_folder, on_wait=on_wait)
    kept_tracer.let_go()
    try:
        ring = RingReader(entered.ring_fd)
    except AutobrrrError:
        entered.socket.close()
        raise
    finally:
        os.close(entered.ring_fd)
    agent = AgentLink(entered.socket)
    same_numbers = entered.facts.pid == pid  # else it lives in a pid namespace of its own

    def watch_thread(tid: int) -> None:
        device.watch_thread(tid if same_numbers else tid_outside(pid, tid) or pid)

    session.watch_thread = watch_thread
    watch_thread(entered.facts.train_tid)
    session.entered(agent, ring, entered.facts, entered.attach)
    return agent


def _uses_gpu(session: Session) -> bool:
    facts = session.findings.facts
    return facts is not None and facts.on_cuda


def _gpu_uuids(session: Session) -> list[str]:
    anatomy = session.findings.anatomy
    return [] if anatomy is None else anatomy.gpu_uuids


def _be_modest() -> None:
    """Give way to training, now that attaching, which must be quick, is done."""
    try:
        os.nice(NICE)
    except OSError:
        pass


class _Signals:
    """SIGTERM and its like end the session in order."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self._before = {number: signal.signal(number, self._catch) for number in SIGNALS}

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.caught = number
