"""A job of these benchmarks, and what it says."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

from benchmarks import ROOT

Measure = Callable[[], object]


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
