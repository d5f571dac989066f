"""Has torch's compile cache filled by the job's own Python, in a process beside the job.

In: the graphs that a remedy has shown. What is compiled runs nowhere but in the job.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable

from autobrrr.sidecar.process.job_program import NotRun, run_beside
from autobrrr.sidecar.session.window_reader import no_trace

MODULES = (".op_replay.background", ".op_replay.fill_cache")
TIMEOUT_S = 600.0
FILE_BYTES = 1 << 30  # precompiled headers take 100 MiB
LOOK_S = 0.1


def graphs_in(fd: int) -> bytes | str:
    """What a file holds that came out of the job, or why it is not read."""
    return no_trace(fd) or os.pread(fd, os.fstat(fd).st_size, 0)


def fill_cache(pid: int, graphs: bytes, stop: Callable[[], bool]) -> str | None:
    """Compile the graphs into the cache. Returns why they are not there; None: they are.

    Args:
        stop: Asked now and then; where it says so, the process ends.
    """
    processes: list[subprocess.Popen[bytes]] = []
    why: list[str] = []

    def given(process: subprocess.Popen[bytes]) -> bytes:
        processes.append(process)
        return graphs

    def work() -> None:
        try:
            run_beside(pid, MODULES, given, TIMEOUT_S, file_bytes=FILE_BYTES)
        except (NotRun, OSError, subprocess.SubprocessError) as error:
            why.append(str(error))

    thread = threading.Thread(target=work, name="compile", daemon=True)
    thread.start()
    while thread.is_alive():
        if processes and stop():
            processes[0].kill()
            why.append("it took too long, or slowed training down")
            stop = bool  # once is enough
        thread.join(LOOK_S)
    return why[0] if why else None
