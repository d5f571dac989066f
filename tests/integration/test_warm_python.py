"""A process that was forked warm is, from inside and outside, what a fresh interpreter would be."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.processes import warm_python
from support.training import environment

LOOKS = """
import json, os, random, signal, sys, tempfile, threading

import torch

print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": list(sys.flags),
    "name": __name__, "file": globals().get("__file__"),
    "main": sys.modules["__main__"].__dict__ is globals(),
    "parent": os.getppid(), "group": os.getpgrp(), "folder": os.getcwd(), "temporary": tempfile.gettempdir(),
    "environment": dict(os.environ), "no_bytecode": sys.dont_write_bytecode,
    "threads": torch.get_num_threads(),
    "main_thread": threading.get_native_id() == os.getpid(),
    "interrupt": str(signal.getsignal(signal.SIGINT)), "files": sorted(os.listdir("/proc/self/fd"))[:4],
    "buffered": sys.stdout.line_buffering, "live_threads": len(os.listdir("/proc/self/task")),
}), flush=True)
assert sys.stdin.read() == ""
sys.exit(7)
"""


def seen(words: list[str], folder: Path, given: dict[str, str]) -> tuple[dict[str, object], list[object]]:
    """What the process says of itself, and what `/proc` says of it."""
    child = warm_python.start(words, given, folder=str(folder), stdin=subprocess.PIPE)
    said = json.loads(child.stdout.readline())
    shown = psutil.Process(child.pid)
    outside = [shown.cmdline(), shown.environ(), shown.exe(), shown.name(), shown.ppid(), shown.cwd()]
    child.communicate(timeout=60)
    assert child.returncode == 7
    return said, outside


@pytest.mark.integration
@pytest.mark.parametrize("by_file", [True, False])
def test_a_warm_process_looks_as_a_cold_one_from_inside_and_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_file: bool
) -> None:
    script = tmp_path / "looks.py"
    script.write_text(LOOKS)
    words = [sys.executable, *([str(script)] if by_file else ["-c", LOOKS]), "one", "--two=three"]
    given = {**environment(tmp_path), "PYTHONPATH": str(tmp_path), "ONLY_HERE": "ä=1"}
    warm, warm_outside = seen(words, tmp_path, given)
    monkeypatch.setenv(warm_python.COLD, "1")
    cold, cold_outside = seen(words, tmp_path, given)
    assert [name for name in cold if warm[name] != cold[name]] == []
    assert warm_outside == cold_outside
