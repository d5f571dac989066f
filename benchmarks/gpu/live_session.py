"""A job of these benchmarks with the product beside it, in folders of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import ROOT

COMMAND_S = 240


@contextlib.contextmanager
def folders(cache: Path | None = None) -> Iterator[dict[str, str]]:
    """An environment with runtime, state and cache folders of its own; this cache, if one is given."""
    with tempfile.TemporaryDirectory() as folder:
        runtime = Path(folder) / "run"
        runtime.mkdir(mode=0o700)
        python_path = [str(ROOT), str(ROOT / "tui"), os.environ.get("PYTHONPATH", "")]
        yield {
            **os.environ,
            "XDG_RUNTIME_DIR": str(runtime),
            "XDG_STATE_HOME": str(Path(folder) / "state"),
            "XDG_CACHE_HOME": str(cache or folder),
            "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
        }


@contextlib.contextmanager
def job(words: list[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A running job; killed at the end, if it still runs."""
    running = subprocess.Popen(
        [sys.executable, *words],
        env=dict(environment),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def said(running: subprocess.Popen[str], begins_with: str) -> list[str]:
    """Words of the first line that begins so; raises RuntimeError where the job ends before it."""
    lines: list[str] = []
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith(begins_with):
            return line.split()
        lines.append(line.rstrip())
    raise RuntimeError(f"the job has ended: {' | '.join(lines[-3:])}")


def product(environment: Mapping[str, str], *words: str) -> dict[str, object]:
    """The JSON that a command of the product prints; raises RuntimeError without one."""
    done = subprocess.run(
        [sys.executable, "-m", "autobrrr", *words],
        env=dict(environment),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    if not done.stdout.strip():
        raise RuntimeError(f"{words[0]} left {done.returncode}: {done.stderr.strip()[-300:]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert isinstance(found, dict)
    return found
