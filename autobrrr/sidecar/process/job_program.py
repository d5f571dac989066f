"""Runs our modules beside the job, in a process with the job's Python and torch.

It runs as the job's user, below everything in priority. The modules come first on standard input, then what
they work on.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import subprocess
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autobrrr.agent.live_torch import available_memory
from autobrrr.attach import job_roles
from autobrrr.attach.bundle import bundle_loader, code_bundle
from autobrrr.attach.job_python import MOST_BYTES, job_python, run_bounded

PACKAGES = ("", ".agent", ".agent.audit", ".agent.wire", ".op_replay")
LEAST_FREE = 1 << 30  # bytes; torch takes 0.2 GiB, a long record half of one: a full group may end the job

NICER = 15  # than the sidecar
LAST = 10  # niceness of its session among sessions: a tenth of a CPU that all want
SOON = 5  # a third of it, for what a verdict waits for: to import torch takes 2 s of CPU time

# Run by the job's interpreter with `-I -S`. It is killed when the thread that waits for it ends.
_PROGRAM = """
import ctypes, marshal, sys, types, zlib
PR_SET_PDEATHSIG, SIGKILL = 1, 9
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
given = sys.stdin.buffer
for name, body in marshal.loads(zlib.decompress(given.read(int(given.readline())))):
    name = "autobrrr" + name
    last = sys.modules[name] = types.ModuleType(name)
    last.__path__, last.__package__ = [], name.rpartition(".")[0] if body else name
    exec(compile(body, "<" + name + ">", "exec", dont_inherit=True), vars(last))
last.main()
"""


class NotRun(Exception):
    """Why there is no answer; one clause."""


def run_beside(
    pid: int,
    modules: Sequence[str],
    given: Callable[[subprocess.Popen[bytes]], bytes],
    timeout_s: float,
    *,
    variables: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    file_bytes: int = MOST_BYTES,
    niceness: int = LAST,
) -> bytes:
    """What the `main` of the last module tells on standard output.

    Args:
        modules: Each after what it imports, less the leading `autobrrr`.
        given: What it works on, asked for once it runs.
        variables: More of its environment.
        root: Of the files that tell this process's memory.
        file_bytes: It may write no larger file.
        niceness: Of its session, to begin with.

    Raises:
        NotRun: it may not be run, was stopped, or failed.
        OSError, SubprocessError: it can't be run, took too long, or said too much.
    """
    python, torch = job_python(pid), job_roles.torch_of(pid)
    if python is None:
        raise NotRun("the job's own Python can't be run from here")
    free = available_memory.host_bytes(root)
    if free is not None and free < LEAST_FREE:
        raise NotRun(f"it needs {LEAST_FREE >> 20} MiB of memory, {free >> 20} MiB are free")
    files = [(name, code_bundle.PACKAGE.joinpath(*name.split(".")).with_suffix(".py")) for name in modules]
    sources = [*((name, b"") for name in PACKAGES), *((name, file.read_bytes()) for name, file in files)]
    packed = zlib.compress(marshal.dumps(sources, bundle_loader.MARSHAL_VERSION))  # a pipe holds them all

    def fed(process: subprocess.Popen[bytes]) -> bytes:
        os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICER)
        give_way(process.pid, niceness)
        if process.stdin is not None:
            process.stdin.write(b"%d\n" % len(packed) + packed)
            process.stdin.flush()
        return given(process)

    folders = [] if torch is None else [os.path.dirname(torch.folder.raw)]
    done = run_bounded(
        [python.name, "-I", "-S", "-B", "-c", _PROGRAM, *folders],
        input=fed,
        timeout=timeout_s,
        file_bytes=file_bytes,
        executable=python.program,
        env={**(variables or {}), **dict(python.variables)},
        cwd="/",
    )
    if done.returncode == -signal.SIGKILL:
        raise NotRun("it was stopped: a tuning began, or memory ran short")
    if done.returncode == -signal.SIGTERM:
        raise NotRun("training can't be paused for it now")
    if done.returncode:
        raise NotRun("it failed")
    return done.stdout


def give_way(pid: int, niceness: int = LAST) -> None:
    """Training comes first. Linux weighs whole sessions where they are groups of their own (autogroups)."""
    for name, value in (("autogroup", niceness), ("oom_score_adj", 1000)):  # short of memory, it ends first
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/{name}").write_text(str(value))
