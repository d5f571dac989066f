"""Real training jobs for tests: start, wait until they train, end, read the fingerprint."""

import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from support.processes import warm_python

JOBS = Path(__file__).resolve().parent / "jobs"
# A job ends at a multiple of so many steps: the fixture `untouched` knows what it trains in those.
EVERY = ("--every", "250")


def environment(folder: Path) -> dict[str, str]:
    """An environment whose runtime, state and cache folders lie in a test's own folder."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    return {
        **os.environ,
        "XDG_RUNTIME_DIR": str(runtime),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder.parent / "cache"),  # peaks are measured once for all tests
        "TMPDIR": temporary(),
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
    }


@functools.cache
def temporary() -> str:
    """A folder for what jobs that are killed leave behind, such as the sockets of a loader's workers.

    It goes with this process. Its path is short, since a socket's may have no more than 107 characters,
    and any user may write into it, as some jobs run as another.
    """
    folder = tempfile.mkdtemp(prefix="autobrrr-tests-")
    Path(folder).chmod(0o1777)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@dataclass(frozen=True)
class Finished:
    """How many steps a job trained, and what came out, to the bit."""

    steps: int
    fingerprint: str


@dataclass
class TrainingJob:
    """A child process that trains one of the scripts in `jobs/`."""

    process: subprocess.Popen[str]
    stop_file: Path
    lines: list[str] = field(default_factory=list)
    training: threading.Event = field(default_factory=threading.Event)

    @property
    def pid(self) -> int:
        return self.process.pid

    def finish(self, timeout_s: float = 60) -> Finished:
        """Let the job end by itself; returns what it trained."""
        self.stop_file.touch()
        assert self.process.wait(timeout_s) == 0, self.lines
        self._reader.join(timeout_s)
        said = dict(
            line.split(maxsplit=1) for line in self.lines if line.startswith(("steps", "fingerprint"))
        )
        return Finished(steps=int(said["steps"]), fingerprint=said["fingerprint"])

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        if self.alive():
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._reader.join(10)

    def follow(self) -> None:
        """Read the job's output in a thread of our own."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("training"):
                self.training.set()


def start(name: str, folder: Path, *words: str, prefix: list[str] | None = None) -> TrainingJob:
    """Start `jobs/NAME.py` and wait until it trains.

    Args:
        words: The job's arguments; without `--steps` it trains until `finish()`.
        prefix: What stands before the script; the current Python where it is None.
    """
    stop_file = folder / f"stop-{name}"
    until = [] if "--steps" in words else ["--until", str(stop_file)]
    command = [*(prefix or [sys.executable]), str(JOBS / f"{name}.py"), *words, *until]
    job = TrainingJob(process=warm_python.start(command, environment(folder)), stop_file=stop_file)
    job.follow()
    assert job.training.wait(90), job.lines
    return job


@dataclass(frozen=True)
class Outcome:
    """What one command left."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, object]:
        """The last line of standard output."""
        found = json.loads(self.stdout.strip().splitlines()[-1])
        assert isinstance(found, dict)
        return found


def ran(words: Sequence[str | Path], *, check: bool = False, **how: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended, with all that it printed; `check` and `how` are those of `subprocess.run`."""
    return subprocess.run(words, check=check, **{"capture_output": True, "text": True, **how})


def autobrrr(folder: Path, *words: str, timeout_s: float = 120) -> Outcome:
    """Run one command of ours as a user does: in a process of its own."""
    done = ran([sys.executable, "-m", "autobrrr", *words], env=environment(folder), timeout=timeout_s)
    return Outcome(done.returncode, done.stdout, done.stderr)


def sidecars(folder: Path, of: int | None = None) -> list[int]:
    """Live background processes of a test's sessions; those of one job, where its pid is given."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            words = process.cmdline()
            ours = process.environ().get("XDG_RUNTIME_DIR") == str(folder / "run")
            ours = ours and "autobrrr.sidecar" in words and process.status() != psutil.STATUS_ZOMBIE
            if ours and (of is None or str(of) in words):
                found.append(process.pid)
    return sorted(found)
