"""The job's own Python, run beside the job: only where that is no way out for it, and no longer than it may.

Whoever runs the job chose that program and its libraries.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autobrrr import paths
from autobrrr.machine import kernel_text, own_place, process_maps, procfs

ENDS_S, LOOK_S = 1.0, 0.005
MOST_BYTES = 32 << 20  # that it may say


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPython:
    """A Python program.

    `program` is what is executed, `name` what it is told it is called (it finds its library by that).
    """

    program: str
    name: str
    variables: tuple[tuple[str, str], ...] = ()


def job_python(pid: int, proc: Path = procfs.PROC) -> JobPython | None:
    """A process's Python, found through its link, so it is right even if it was deleted.

    It is run only where the job is kept in no closer than we are. None where it may not be.
    """
    if not own_place.has_our_walls(pid, proc):
        return None
    link = proc / str(pid) / "exe"
    name = (kernel_text.link(link) or "").removesuffix(process_maps.DELETED)
    if not procfs.is_python(name):  # it has Python within: run anew, it would do its own work once more
        return None
    environment = procfs.environ(pid, ("LD_LIBRARY_PATH", "PYTHONHOME"), proc)
    return JobPython(
        program=str(link),
        name=name,
        variables=tuple(sorted((key, value.raw) for key, value in environment.items())),
    )


def run_bounded(
    words: list[str],
    *,
    input: bytes | Callable[[subprocess.Popen[bytes]], bytes],
    timeout: float,
    file_bytes: int = MOST_BYTES,
    **options: object,
) -> subprocess.CompletedProcess[bytes]:
    """Like `subprocess.run`, for a program that may be hostile: it gets no terminal of ours, little time, and
    is heard to so many bytes and no further. What it has started ends with it.

    Args:
        input: All of it, or what makes it once the program runs.
        timeout: In seconds, from when the input is there.
        file_bytes: It may write no larger file.

    Raises:
        OSError, SubprocessError: it can't be run, took too long, or said too much.
    """
    with tempfile.TemporaryFile(dir=paths.temporary_dir()) as answer:
        streams = {"stdin": subprocess.PIPE, "stdout": answer, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(words, start_new_session=True, **streams, **options)  # type: ignore[call-overload]
        try:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
            process.communicate(input if isinstance(input, bytes) else input(process), timeout)
        finally:
            with contextlib.suppress(OSError):  # a compiler takes away what it has half written
                os.killpg(process.pid, signal.SIGTERM)
                until_s = time.monotonic() + ENDS_S
                while time.monotonic() < until_s:
                    process.poll()
                    os.killpg(process.pid, 0)
                    time.sleep(LOOK_S)
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a file system that never answers keeps it
                process.wait(ENDS_S)
        answer.seek(0)
        said = answer.read(MOST_BYTES)
    if len(said) == MOST_BYTES:
        raise subprocess.SubprocessError(f"{words[0]} says more than {MOST_BYTES} bytes")
    return subprocess.CompletedProcess(words, process.returncode, said, b"")
