"""The verb `prove` in a process of its own, in the folders of a test."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import training

ROOT = Path(__file__).resolve().parents[2]
STEPS = "20"


def environment(tmp_path: Path) -> dict[str, str]:
    """Temporary files lie in the test's folder too: what is left there was left by the verb."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return {
        **training.environment(tmp_path),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(tmp_path / "tmp"),
    }


def started(tmp_path: Path, folder: Path, *words: str) -> subprocess.Popen[str]:
    """The verb, running."""
    return subprocess.Popen(
        [sys.executable, "-m", "autobrrr", "prove", "--verbose", "--json", "--for", "10s", *words],
        cwd=folder,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def proven(tmp_path: Path, folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON of the proof or of the error, and what was said. Nothing may be left."""
    process = started(tmp_path, folder, *words)
    try:
        out, said = process.communicate(timeout=200)
    finally:
        process.kill()
    assert left(tmp_path) == [], said
    lines = [line for line in (out or said).splitlines() if line.startswith("{")]
    return process.returncode, json.loads(lines[-1]), said


def left(tmp_path: Path) -> list[str]:
    """Temporary files that are still there."""
    return sorted(os.listdir(tmp_path / "tmp"))
