"""Has a recorded step replayed by the job's own Python, on a thread and in a process of its own.

In: the agent's event `recorded` and its open file. Out: a `StepReplay`, on the event loop's thread. The
process imports torch and nothing else of the job's, if it can before the step is recorded. It runs as the
job's user, below everything in priority.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import subprocess
import threading
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from pathlib import Path

import msgspec

from autobrrr.agent.live_torch import available_memory
from autobrrr.attach import job_roles
from autobrrr.attach.bundle import bundle_loader, code_bundle
from autobrrr.attach.job_python import job_python, run_bounded
from autobrrr.machine import procfs
from autobrrr.records import OpWork, ShadowProbe
from autobrrr.records.record_base import Record, as_record
from autobrrr.sidecar.session.window_reader import Call, no_trace

PACKAGES = ("", ".agent", ".agent.audit", ".agent.wire", ".op_replay")
MODULES = (  # each after what it imports
    ".agent.wire.recording",
    ".agent.audit.op_flops",
    *(f".op_replay.{name}" for name in ("step_record", "call_work", "player", "replay")),
)
TIMEOUT_S = 90.0
LEAST_FREE = 1 << 30  # bytes; torch takes 0.2 GiB, a long record half of one: a full group may end the job
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


OnReplay = Callable[[StepReplay], None]
Replay = Callable[[Mapping[str, object], int | None, OnReplay], None]
Handed = tuple[bytes, OnReplay]  # a recording

# Run by the job's interpreter with `-I -S`: the modules come first on standard input, then the recording.
_PROGRAM = """
import marshal, sys, types, zlib
given = sys.stdin.buffer
for name, body in marshal.loads(zlib.decompress(given.read(int(given.readline())))):
    name = "autobrrr" + name
    last = sys.modules[name] = types.ModuleType(name)
    last.__path__, last.__package__ = [], name.rpartition(".")[0] if body else name
    exec(compile(body, "<" + name + ">", "exec", dont_inherit=True), vars(last))
last.main()
"""


class StepReplayer:
    """Replays one recording at a time.

    Args:
        call: Runs a function on the event loop's thread.
    """

    def __init__(self, pid: int, call: Call) -> None:
        self._pid, self._call = pid, call
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

    def __call__(self, told: Mapping[str, object], fd: int | None, done: OnReplay) -> None:
        """Replay what lies behind `fd`, which is closed; `done` gets the answer later."""
        try:
            if self._replaying:  # one at a time: an agent may send as many as it likes
                return
            why = told.get("why", "the step's record did not come with it")
            refusal = str(why) if fd is None or told.get("status") != "ok" else no_trace(fd)
            if fd is None or refusal is not None:
                self.expect(False)
                done(_abstained(str(refusal)))
                return
            recording = os.pread(fd, os.fstat(fd).st_size, 0)
        finally:
            if fd is not None:
                os.close(fd)
        self.expect(True)
        self._replaying = True
        if self._handed is not None:
            self._handed.set_result((recording, done))

    def _work(self, handed: Future[Handed]) -> None:
        def recording(process: subprocess.Popen[bytes]) -> bytes:
            self._process = process
            return handed.result()[0]

        with contextlib.suppress(CancelledError):
            try:
                found = replayed(self._pid, recording)
            except (OSError, subprocess.SubprocessError, msgspec.MsgspecError, ValueError) as error:
                why = f"the recorded step can't be replayed: {type(error).__name__}: {error}"
                found = _abstained(why[:200])
            done = handed.result()[1]  # a process that can't be run ends before a step is recorded
            self._call(lambda: self._hand_back(found, done))

    def _hand_back(self, found: StepReplay, done: OnReplay) -> None:
        self._replaying, self._handed, self._process = False, None, None  # it holds what it was given
        done(found)


def replayed(
    pid: int, recording: Callable[[subprocess.Popen[bytes]], bytes], root: Path = Path("/")
) -> StepReplay:
    """What a replay tells of a recording, which is asked for while the process imports torch.

    Args:
        root: Of the files that tell this process's memory.

    Raises:
        OSError, SubprocessError, MsgspecError: the process can't be run, failed, or told nonsense.
    """
    python, torch = job_python(pid), job_roles.torch_of(pid)
    if python is None:
        return _abstained("the job's own Python can't be run from here")
    free = available_memory.host_bytes(root)
    if free is not None and free < LEAST_FREE:
        return _abstained(f"a replay needs {LEAST_FREE >> 20} MiB of memory, {free >> 20} MiB are free")
    files = [(name, code_bundle.PACKAGE.joinpath(*name.split(".")).with_suffix(".py")) for name in MODULES]
    sources = [*((name, b"") for name in PACKAGES), *((name, file.read_bytes()) for name, file in files)]
    modules = zlib.compress(marshal.dumps(sources, bundle_loader.MARSHAL_VERSION))  # a pipe holds them all

    def given(process: subprocess.Popen[bytes]) -> bytes:
        if process.stdin is not None:
            process.stdin.write(b"%d\n" % len(modules) + modules)
            process.stdin.flush()
        return recording(process)

    variables = {name: str(value.raw) for name, value in procfs.environ(pid, VARIABLES).items()}
    folders = [] if torch is None else [os.path.dirname(torch.folder.raw)]
    done = run_bounded(
        [python.name, "-I", "-S", "-B", "-c", _PROGRAM, *folders],
        input=given,
        timeout=TIMEOUT_S,
        executable=python.program,
        env={**variables, **dict(python.variables), **PASSIVE},
        cwd="/",
    )
    if done.returncode == -signal.SIGKILL:
        return _abstained("the replay was stopped: a tuning began, or memory ran short")
    if done.returncode:
        return _abstained("the replay of the recorded step failed")
    return as_record(msgspec.json.decode(done.stdout), StepReplay)


def _abstained(why: str) -> StepReplay:
    return StepReplay(probe=ShadowProbe(status="abstained", why=why))
