"""A job of two real ranks under torchrun, or another launcher, ended with all that it has started."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from autobrrr.attach.job_roles import launched_ranks
from support.training import JOBS, environment

START_S = 120
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
# As torchrun with --max-restarts=1, whose restart on gloo fails now and then, whoever watches.
RESTARTS_ONCE = """
import os, socket, subprocess, sys
for _ in range(2):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, **where, "RANK": str(rank)})
        for rank in range(2)
    ]
    os.wait()  # one has died
    for each in ranks:
        each.kill()
        each.wait()
"""


class Torchrun:
    """A launcher of ranks of `jobs/SCRIPT.py`, or of a script elsewhere."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        launcher: Sequence[str] = TORCHRUN,
        script: str = "parallel",
        ranks: int = 2,
        **given: str,
    ) -> None:
        self._script, self._ranks = f"{script}.py", ranks
        scratch = folder / "t"
        scratch.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, *launcher, str(JOBS / self._script), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**environment(folder), "TMPDIR": str(scratch), **given},
        )
        self.lines: list[str] = []
        self._seen: list[int] = []
        self._trains = threading.Semaphore(0)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_it_trains(self) -> list[int]:
        """All ranks; their processes."""
        for _ in range(self._ranks):
            assert self._trains.acquire(timeout=START_S), self.lines
        found = launched_ranks(self.process.pid)
        self._seen += found
        return found

    @property
    def pid(self) -> str:
        return str(self.process.pid)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()  # the launcher ends its ranks
        self.process.wait(60)
        for pid in self._seen:  # those of a launcher that was killed are nobody's
            with contextlib.suppress(OSError):
                if self._script in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)
        self._reader.join(10)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            for _ in range(line.count("training")):  # two ranks may write on one line
                self._trains.release()
