"""Has a recorded step replayed by the job's own Python, on a thread and in a process of its own.

In: the agent's event `recorded` and its open file. Out: a `StepReplay`, on the event loop's thread. The
process imports torch and nothing else of the job's; it runs as the job's user, below everything in priority.
"""

from __future__ import annotations

import marshal
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping

import msgspec

from autobrrr.attach.bundle import code_bundle
from autobrrr.attach.job_python import job_python, run_bounded
from autobrrr.machine import procfs
from autobrrr.records import OpWork, ShadowProbe
from autobrrr.records.record_base import Record, as_record
from autobrrr.sidecar.session.window_reader import Call, no_trace

MODULES = (  # each after what it imports
    "agent.wire.recording",
    "agent.audit.op_flops",
    *(f"op_replay.{name}" for name in ("step_record", "call_work", "player", "replay")),
)
TIMEOUT_S = 90.0
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}  # no thread spins
# What decides how torch computes and takes memory there.
VARIABLES = (
    *(
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OMP_PROC_BIND",
        "KMP_AFFINITY",
        "KMP_BLOCKTIME",
        "ATEN_CPU_CAPABILITY",
    ),
    *("LD_PRELOAD", "MALLOC_CONF", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"),
)


class StepReplay(Record, frozen=True, kw_only=True):
    """What a recorded step tells; `probe` is None where nobody asked for other batch sizes."""

    work: list[OpWork] = []
    probe: ShadowProbe | None = None


OnReplay = Callable[[StepReplay], None]
Replay = Callable[[Mapping[str, object], int | None, OnReplay], None]

# Run by the job's interpreter with `-I -S`: the modules come first on standard input, then the recording.
_PROGRAM = """
import marshal, sys, types
given = sys.stdin.buffer
def made(name, body=""):
    above, _, last = name.rpartition(".")
    package = above and (sys.modules.get(above) or made(above))
    module = sys.modules[name] = types.ModuleType(name)
    module.__package__ = above if body else name
    module.__path__ = []
    exec(compile(body, "<autobrrr " + name + ">", "exec", dont_inherit=True), vars(module))
    if above:
        setattr(package, last, module)
    return module
for name, body in marshal.loads(given.read(int(given.readline()))):
    last = made("autobrrr." + name, body)
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
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """Nobody replays from here on: what is compared now must not share its CPUs with us."""
        process = self._process
        if self._replaying and process is not None:
            process.kill()

    def _began(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __call__(self, told: Mapping[str, object], fd: int | None, done: OnReplay) -> None:
        """Replay what lies behind `fd`, which is closed; `done` gets the answer later."""
        if self._replaying:  # one at a time: an agent may send as many as it likes
            if fd is not None:
                os.close(fd)
            return
        self._replaying = True
        threading.Thread(target=self._work, args=(told, fd, done), name="replay", daemon=True).start()

    def _work(self, told: Mapping[str, object], fd: int | None, done: OnReplay) -> None:
        try:
            found = replayed(self._pid, told, fd, self._began)
        except (OSError, subprocess.SubprocessError, msgspec.MsgspecError, ValueError) as error:
            found = _abstained(f"the recorded step can't be replayed: {type(error).__name__}: {error}"[:200])
        self._call(lambda: self._hand_back(found, done))

    def _hand_back(self, found: StepReplay, done: OnReplay) -> None:
        self._replaying = False
        done(found)


def replayed(
    pid: int,
    told: Mapping[str, object],
    fd: int | None,
    began: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
) -> StepReplay:
    """What a replay tells of the recording behind `fd`, which is closed.

    Raises:
        OSError, SubprocessError, MsgspecError: the process can't be run, failed, or told nonsense.
    """
    if fd is None or told.get("status") != "ok":
        if fd is not None:
            os.close(fd)
        why = told.get("why")
        return _abstained(why if isinstance(why, str) else "the step's record did not come with it")
    try:
        refusal = no_trace(fd)
        if refusal is not None:
            return _abstained(refusal)
        recording = os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)
    python = job_python(pid)
    if python is None:
        return _abstained("the job's own Python can't be run from here")
    modules = marshal.dumps(
        [
            (name, code_bundle.PACKAGE.joinpath(*name.split(".")).with_suffix(".py").read_bytes())
            for name in MODULES
        ],
        code_bundle.MARSHAL_VERSION,
    )
    variables = {name: str(value.raw) for name, value in procfs.environ(pid, VARIABLES).items()}
    done = run_bounded(
        [python.name, "-I", "-S", "-B", "-c", _PROGRAM],
        input=b"%d\n" % len(modules) + modules + recording,
        timeout=TIMEOUT_S,
        began=began,
        executable=python.program,
        env={**variables, **dict(python.variables), **PASSIVE},
        cwd="/",
    )
    if done.returncode == -signal.SIGKILL:
        return _abstained("it was stopped for the tuning")
    if done.returncode:
        return _abstained("the replay of the recorded step failed")
    return as_record(msgspec.json.decode(done.stdout), StepReplay)


def _abstained(why: str) -> StepReplay:
    return StepReplay(probe=ShadowProbe(status="abstained", why=why))
