"""The process that borrows a thread: every signal blocked from its first instruction, and nothing else in it.

The command names jobs to it; for each it forks a process that opens the job's memory or makes a call, for
whoever has the other end of the socket that came with the name. Root's becomes the job's user first, and
keeps the right to trace. It ends with the command.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable

from autobrrr.attach.ptrace import borrowed_thread, pending_call, thread_start
from autobrrr.attach.ptrace.borrowed_thread import InjectionSite, Way
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.machine import job_user, same_program
from autobrrr.machine.same_program import Program

MOST_BYTES = 1 << 17  # of a message
WAYS: dict[str, Callable[[InjectionSite, bytes], Way]] = {
    "pending_call": pending_call.PendingCall,
    "thread_start": thread_start.way_to,
}
Message = dict[str, object]


def outcome(request: Message, program: Program) -> Message:
    """What came of one call."""
    try:
        target = borrowed_thread.aim(int(str(request["pid"])), program=program)
        way = WAYS[str(request["way"])](target, str(request["code"]).encode())
        done = borrowed_thread.strike(way)
    except AutobrrrError as error:
        return _fields(error)
    return {name: getattr(done, name) for name in ("page", "tries", "pause_ns")}


def _fields(error: AutobrrrError) -> Message:
    return {"error": error.message, "hint": error.hint, "exit_code": error.exit_code}


def serve() -> None:
    """Become the user of the first argument (JSON; null: stay); take jobs from the socket of the second."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    gc.disable()
    given = json.loads(sys.argv[1])
    user = None if given is None else job_user.JobUser(*given)
    with socket.socket(fileno=int(sys.argv[2])) as command:
        try:
            if user is not None:
                job_user.become(user, user.counting | job_user.TRACING)
        except OSError as error:
            command.send(json.dumps({"error": error.strerror}).encode())
            return
        command.send(b"{}")
        while True:
            said, fds, _, _ = socket.recv_fds(command, MOST_BYTES, 1)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            if not said:
                return
            if os.fork() == 0:
                command.close()
                with socket.socket(fileno=fds[0]) as link:
                    _serve_job(link, Program(*json.loads(said)), user)
                os._exit(0)
            os.close(fds[0])


def _serve_job(link: socket.socket, program: Program, user: job_user.JobUser | None) -> None:
    """Answer about one job until the socket is closed. It must be of that user, and run that program."""
    while said := link.recv(MOST_BYTES):
        request: Message = json.loads(said)
        pid = int(str(request["pid"]))
        if user is not None and (
            (program.uid, program.gid) != user[:2] or program.capabilities & ~user.capabilities
        ):
            other = TargetGone(
                f"process {pid} runs with other rights than when it was looked at", "try again"
            )
            link.send(json.dumps(_fields(other)).encode())
        elif "code" in request:
            if os.fork() == 0:  # a thread that could not be let go is let go by the end of its tracer
                link.send(json.dumps(outcome(request, program)).encode())
                os._exit(0)
            os.wait()
        else:
            _send_memory(link, pid, program)


def _send_memory(link: socket.socket, pid: int, program: Program) -> None:
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        link.send(json.dumps({"number": error.errno}).encode())
        return
    try:
        # Asked when it is open: after an exec this is still the memory of the program before it.
        same_program.require(pid, program)
        socket.send_fds(link, [b"{}"], [memory])
    except AutobrrrError as error:
        link.send(json.dumps(_fields(error)).encode())
    finally:
        os.close(memory)
