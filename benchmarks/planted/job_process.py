"""Starts planted jobs, and leaves none behind: every descendant, also an orphaned one, is ours to reap."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks import ROOT
from benchmarks.planted.case import Case, Knob
from benchmarks.planted.truth import Timing

PR_SET_CHILD_SUBREAPER = 36
CALM_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
START_S = 90.0
OURS = (str(ROOT), str(ROOT / "tui"))
NOTHING: Mapping[str, Knob] = {}


class JobFailed(Exception):
    """A planted job ended by itself, or never trained."""


def adopt_orphans() -> None:
    """Make this process the parent of all its orphaned descendants."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_descendants() -> list[str]:
    """Kill and reap what still runs below this process; returns what it was."""
    left = psutil.Process().children(recursive=True)
    named = []
    for each in left:
        with contextlib.suppress(psutil.Error):
            if each.status() != psutil.STATUS_ZOMBIE:
                named.append(" ".join(each.cmdline())[:120])
                each.kill()
    psutil.wait_procs(left, timeout=5)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return named


class PlantedJob:
    """A case's script as a process of its own; `with` ends it."""

    def __init__(
        self, case: Case, *words: str, environment: Mapping[str, str], over: Mapping[str, Knob] = NOTHING
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", case.module, *case.words(over), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**environment, **case.environment()},
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._training = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for_training(self, timeout_s: float = START_S) -> None:
        """Until its third step.

        Raises:
            JobFailed: it ended, or takes too long.
        """
        until = time.monotonic() + timeout_s
        while not self._training.wait(0.1):
            if self._process.poll() is not None or time.monotonic() > until:
                raise JobFailed("\n".join(self._lines[-8:]) or "it says nothing")

    def works_on(self, within_s: float = 2.0) -> bool:
        """Whether its main thread goes on: it runs, and is scheduled again and again."""
        before = _switches(self.pid)
        until = time.monotonic() + within_s
        while self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
            if _switches(self.pid) != before:
                return True
        return False

    def finish(self, timeout_s: float) -> None:
        """Wait until it ends by itself.

        Raises:
            JobFailed: it fails, or takes too long.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            raise JobFailed("\n".join(self._lines[-8:]) or f"exit code {code}")

    def __enter__(self) -> PlantedJob:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip())
            if line.startswith("training"):
                self._training.set()


def timed(
    case: Case,
    environment: Mapping[str, str],
    *words: str,
    seconds: float = 2.0,
    over: Mapping[str, Knob] = NOTHING,
) -> Timing:
    """Run a script under its own stopwatch.

    Raises:
        JobFailed: it gave no times.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "clock.json"
        told = ("--clock", str(found), "--seconds", str(seconds), *words)
        with PlantedJob(case, *told, environment=environment, over=over) as job:
            job.finish(START_S + 4 * seconds)
        return Timing(**json.loads(found.read_text(encoding="utf-8")))


def product(environment: Mapping[str, str], *words: str, within_s: float = 600.0) -> dict[str, Any]:
    """What a command of ours answers as JSON.

    Raises:
        JobFailed: it gave no answer.
    """
    command = [sys.executable, "-m", "autobrrr", words[0], "--json", *words[1:]]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=dict(environment), timeout=within_s, check=False
        )
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise JobFailed(f"{words[0]} took more than {within_s:.0f} s") from None
    except (ValueError, IndexError):
        raise JobFailed(f"{words[0]} left {done.returncode}: {done.stderr.strip()[-400:]}") from None
    return found


@contextlib.contextmanager
def own_folders(keep: Path | None = None, cache: Path | None = None) -> Iterator[dict[str, str]]:
    """An environment whose runtime, state and cache folders are made for this run, or given."""
    with tempfile.TemporaryDirectory(prefix="planted-") as made:
        base = keep or Path(made)
        runtime = base / "run"
        runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield {
            **{name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_"))},
            "XDG_RUNTIME_DIR": str(runtime),
            "XDG_STATE_HOME": str(base / "state"),
            "XDG_CACHE_HOME": str(cache or base / "cache"),
            "NO_COLOR": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (*OURS, os.environ.get("PYTHONPATH")))),
        }


def _switches(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii")
    return ""
