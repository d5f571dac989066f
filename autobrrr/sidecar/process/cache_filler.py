"""Has torch's compile cache filled by the job's own Python, in a process beside the job.

In: the graphs that a remedy has shown. What is compiled runs nowhere but in the job.
"""

from __future__ import annotations

import subprocess
import threading

import msgspec

from autobrrr.sidecar.process.job_program import NotRun, run_beside

MODULES = (".op_replay.fill_cache",)
TIMEOUT_S = 600.0
FILE_BYTES = 1 << 30  # precompiled headers take 100 MiB
ENDS_S = 5.0


class CacheFiller:
    """Compiles graphs into the cache: one thread waits for one process.

    Args:
        graphs: As the job has shown them, or why it has not.

    Attributes:
        why: Why the cache is not filled; None while nothing speaks against it.
    """

    def __init__(self, pid: int, graphs: bytes | str) -> None:
        self.why = graphs if isinstance(graphs, str) else None
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, args=(pid, graphs), name="compile", daemon=True)
        if self.why is None:
            self._thread.start()

    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def stop(self, why: str) -> None:
        """End the process, and all that it has started."""
        self.why = self.why or why
        self._over.set()
        if self._process is not None:
            self._process.kill()
        if not self.done():
            self._thread.join(ENDS_S)

    def _work(self, pid: int, graphs: bytes) -> None:
        def given(process: subprocess.Popen[bytes]) -> bytes:
            self._process = process
            if self._over.is_set():
                process.kill()
            return graphs

        try:
            said = run_beside(pid, MODULES, given, TIMEOUT_S, file_bytes=FILE_BYTES)
            self.why = self.why or msgspec.json.decode(said, type=str | None)
        except (NotRun, OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
            self.why = self.why or str(error)
