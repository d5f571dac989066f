"""Has a recorded step replayed by the job's own Python, on a thread and in a process of its own.

In: the agent's event `recorded` and its open file. Out: a `StepReplay`, on the event loop's thread. The
process imports torch and nothing else of the job's, if it can before the step is recorded. It runs as the
job's user, below everything in priority.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from pathlib import Path

import msgspec

from autobrrr.machine import kernel_text, procfs
from autobrrr.records import OpWork, ShadowProbe
from autobrrr.records.record_base import Record, as_record
from autobrrr.sidecar.process.job_program import SOON, NotRun, give_way, run_beside
from autobrrr.sidecar.sockets.socket_frames import content

MODULES = (  # each after what it imports
    ".agent.wire.recording",
    ".agent.audit.op_flops",
    *(
        f".op_replay.{name}"
        for name in ("step_record", "call_work", "player", "device_queue", "device_replay", "replay")
    ),
)
TIMEOUT_S = 90.0
LOOK_S = 0.02
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}  # no thread spins
# What decides how torch computes and takes memory there.
VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY", "KMP_BLOCKTIME"),
    *("ATEN_CPU_CAPABILITY", "LD_PRELOAD", "MALLOC_CONF", "MALLOC_ARENA_MAX"),
    *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"),
)


class StepReplay(Record, frozen=True, kw_only=True):
    """What a recorded step tells; `probe` is None where nobody asked for other batch sizes."""

    work: list[OpWork] = []
    probe: ShadowProbe | None = None
    more: bool = False  # to come, of the same step


Call = Callable[[Callable[[], None]], object]
OnReplay = Callable[[StepReplay], None]
Replay = Callable[[Mapping[str, object], int | None, OnReplay], None]
Handed = tuple[bytes, OnReplay]  # a recording


class StepReplayer:
    """Replays one recording at a time.

    Args:
        call: Runs a function on the event loop's thread.

    Attributes:
        drain: Has the job stand still, its device at rest; is called on the event loop's thread.
    """

    def __init__(self, pid: int, call: Call) -> None:
        self._pid, self._call = pid, call
        self.drain: Callable[[Callable[[Mapping[str, object]], None]], None] = lambda drained: None
        self._replaying = False
        self._handed: Future[Handed] | None = None  # of the process that is there
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """Nobody replays from here on: what is compared now must not share its CPUs with us."""
        self.expect(False)
        if self._replaying and self._process is not None:
            self._process.kill()

    def expect(self, soon: bool) -> None:
        """A recording will come soon, for which a process is made ready; or none will, and it ends."""
        if soon and self._handed is None:
            self._handed = Future()
            threading.Thread(target=self._work, args=(self._handed,), name="replay", daemon=True).start()
        elif not soon and self._handed is not None and self._handed.cancel():
            self._handed = None

    def rest(self, paused: bool = True) -> None:
        """A process that is made ready stands still meanwhile, or goes on: steps are being traced."""
        if self._process is not None and not self._replaying:
            self._process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def __call__(self, told: Mapping[str, object], fd: int | None, done: OnReplay) -> None:
        """Replay what lies behind `fd`, which is closed; `done` gets the answer later."""
        why = str(told.get("why", "the step's record did not come with it"))
        recording = why if fd is None else content(fd)
        if self._replaying:  # one at a time: an agent may send as many as it likes
            return
        self.rest(False)
        if isinstance(recording, str) or told.get("status") != "ok":
            self.expect(False)
            done(_abstained(recording if isinstance(recording, str) else why))
            return
        self.expect(True)
        self._replaying = True
        if self._handed is not None:
            self._handed.set_result((recording, done))

    def _work(self, handed: Future[Handed]) -> None:
        def recording(process: subprocess.Popen[bytes]) -> bytes:
            self._process = process
            given, done = handed.result()
            threading.Thread(target=self._watch, args=(process, done), name="replays", daemon=True).start()
            return given

        with contextlib.suppress(CancelledError):
            try:
                found = replayed(self._pid, recording)
            except (OSError, subprocess.SubprocessError, msgspec.MsgspecError, ValueError) as error:
                why = f"the recorded step can't be replayed: {type(error).__name__}: {error}"
                found = _abstained(why[:200])
            done = handed.result()[1]  # a process that can't be run ends before a step is recorded
            self._call(lambda: self._hand_back(found, done))

    def _watch(self, process: subprocess.Popen[bytes], done: OnReplay) -> None:
        """Hear its first line. Whenever it stops itself, have the job stand still; then let it go on."""

        def drained(reply: Mapping[str, object]) -> None:
            if reply.get("drained") is not True:
                process.terminate()  # as it goes on
            process.send_signal(signal.SIGCONT)
            asked.clear()

        def heard(told: StepReplay) -> None:
            if told.more and self._process is process:  # else the whole answer came before
                done(told)

        asked, first = threading.Event(), b""
        while process.returncode is None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                if not first and (first := _first_line(process.pid)):
                    give_way(process.pid)  # the rest may take its time
                    self._call(partial(heard, as_record(msgspec.json.decode(first), StepReplay)))
            seen = procfs.stat(process.pid)
            if not asked.is_set() and seen is not None and seen.state == "T":
                asked.set()
                self._call(lambda: self.drain(drained))
            time.sleep(LOOK_S)

    def _hand_back(self, found: StepReplay, done: OnReplay) -> None:
        self._replaying, self._handed, self._process = False, None, None  # it holds what it was given
        done(found)


def replayed(
    pid: int, recording: Callable[[subprocess.Popen[bytes]], bytes], root: Path = Path("/")
) -> StepReplay:
    """What a replay tells of a recording, which is asked for while the process imports torch.

    Raises:
        OSError, SubprocessError, MsgspecError: the process can't be run, failed, or told nonsense.
    """
    variables = {name: str(value.raw) for name, value in procfs.environ(pid, VARIABLES).items()} | PASSIVE
    try:
        said = run_beside(pid, MODULES, recording, TIMEOUT_S, variables=variables, root=root, niceness=SOON)
    except NotRun as why:
        return _abstained(f"the step can't be replayed: {why}")
    return as_record(msgspec.json.decode(said.rstrip().rpartition(b"\n")[2]), StepReplay)


def _first_line(pid: int) -> bytes:
    """What a process has told in a whole line so far; nothing until then."""
    line, end, _ = kernel_text.read(f"/proc/{pid}/fd/1").partition(b"\n")
    return line if end else b""


def _abstained(why: str) -> StepReplay:
    return StepReplay(probe=ShadowProbe(status="abstained", why=why))
