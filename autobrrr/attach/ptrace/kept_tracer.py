"""The process that traces (`tracer`), as those reach it for whom it does: root's is kept, with the right to.

The command holds its socket, and names a job over it; who has the other end of what comes of that, the
command itself or the job's sidecar, may have that job's memory opened and a call made in it. Where no right
was given up, one is started for each call.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from autobrrr.errors import EXIT_GONE, CannotAttach, TargetGone
from autobrrr.machine import same_program
from autobrrr.machine.job_user import JobUser
from autobrrr.machine.same_program import Program

MOST_BYTES = 1 << 16
ANSWER_S = 150.0  # killed in the middle of a call it would end the job: more than all its waits
Message = dict[str, object]
_ROOT = Path(__file__).resolve().parents[3]
_held: list[_Command] = []  # the command's own
_jobs: list[Tracer] = []  # a sidecar's


class Tracer:
    """May trace one job, by the other end of a socket."""

    def __init__(self, link: socket.socket) -> None:
        link.settimeout(ANSWER_S)
        self._link = link

    def ask(self, request: Message) -> tuple[Message, list[int]]:
        """Its answer, and the descriptors that came with it. Raises CannotAttach where none comes."""
        try:
            self._link.send(json.dumps(request).encode())
        except OSError as error:
            raise CannotAttach(f"the injector does not listen: {error}", "try again") from None
        return self.hear()

    def hear(self) -> tuple[Message, list[int]]:
        """What it says; likewise."""
        try:
            said, fds, _, _ = socket.recv_fds(self._link, MOST_BYTES, 1)
            answer: Message = json.loads(said)
        except (OSError, ValueError) as error:
            raise CannotAttach(f"the injector did not answer: {error}", "try again") from None
        return answer, fds

    def close(self) -> None:
        self._link.close()


@contextlib.contextmanager
def of_job(pid: int, program: Program | None = None) -> Iterator[Tracer]:
    """Who traces a job for this process: the one that was kept, else one with our own rights.

    Args:
        program: What it must still run; what it runs now where None.

    Raises:
        TargetGone: it ended.
    """
    if _jobs:
        yield _jobs[0]
        return
    with contextlib.ExitStack() as stack:
        command = _held[0] if _held else stack.enter_context(contextlib.closing(_Command(None)))
        yield stack.enter_context(
            contextlib.closing(Tracer(_link(command, program or same_program.seen(pid))))
        )


def link_for(pid: int) -> socket.socket | None:
    """A socket for a job's sidecar, over which the job can be traced as it is now; None: it needs none.

    Raises:
        TargetGone: it ended.
    """
    return _link(_held[0], same_program.seen(pid)) if _held else None


def _link(command: _Command, program: Program) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(command.socket, [json.dumps(program).encode()], [theirs.fileno()])
    return ours


def is_kept() -> bool:
    """Whether somebody else traces for this process."""
    return bool(_held or _jobs)


def adopt(fd: int) -> None:
    """This process is the sidecar of the job that the socket behind a descriptor is for."""
    _jobs.append(Tracer(socket.socket(fileno=fd)))


def let_go() -> None:
    """Nothing is traced from here on."""
    for kept in (_jobs, _held):
        while kept:
            kept.pop().close()


def keep(user: JobUser) -> None:
    """Start the process, which becomes that user; called before this one does.

    Raises:
        CannotAttach: this process has not the right.
    """
    _held.append(_Command(user))


def memory(pid: int) -> int:
    """A descriptor of a process's memory. Raises OSError, or TargetGone where it runs another program."""
    if not is_kept():
        return os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
    with of_job(pid) as tracer:
        answer, fds = tracer.ask({"pid": pid})
    if "number" in answer:
        raise OSError(answer["number"], "may not be opened")
    refused_or(answer)
    return fds[0]


def refused_or(answer: Message) -> dict[str, int]:
    """The figures of an answer. Raises what it says went wrong."""
    if "error" in answer:
        kind = TargetGone if answer["exit_code"] == EXIT_GONE else CannotAttach
        raise kind(str(answer["error"]), str(answer["hint"]))
    return {name: int(str(value)) for name, value in answer.items()}


class _Command:
    """A tracer, with every signal blocked from its first instruction, and our end of its socket."""

    def __init__(self, user: JobUser | None) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = (
            f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
            "from autobrrr.attach.ptrace.tracer import serve; serve()"
        )
        words = [sys.executable, "-I", "-S", "-c", program, json.dumps(user), str(theirs.fileno())]
        null, fds = subprocess.DEVNULL, (theirs.fileno(),)
        earlier = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            with theirs:
                self._process = subprocess.Popen(
                    words, stdin=null, stdout=null, stderr=null, pass_fds=fds, cwd="/"
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, earlier)
        answer, _ = Tracer(self.socket).hear()
        if answer and user is not None:
            self.close()
            raise CannotAttach(
                f"autobrrr may not act as uid {user.uid}, whose job that is: {answer['error']}",
                "run autobrrr as that user",
            )

    def close(self) -> None:
        self.socket.close()
        self._process.wait()
