"""`prove` as a user calls it, on sides that can't be proven: each is told, and nothing is left."""

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from autobrrr.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_REFUSED
from support import proof_verb, relaunch, training
from support.day_cases import by_day
from support.proof_scripts import Change, written

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
UPDATE = "    optimizer.step()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


def command(folder: Path, *edits: tuple[str, str], name: str = "after", python: str = sys.executable) -> str:
    file = written(folder, name, Change(name=name, edits=edits).text())
    return shlex.join([python, file.name, proof_verb.STEPS])


def pair(folder: Path, *edits: tuple[str, str], python: str = sys.executable) -> tuple[str, ...]:
    """The unchanged script against a changed one."""
    return (
        *("--before", command(folder, name="before")),
        *("--after", command(folder, *edits, python=python)),
    )


def test_a_side_that_crashes_is_named_with_its_last_words(tmp_path: Path, folder: Path) -> None:
    edit = (UPDATE, UPDATE + "    if step == 5:\n        raise ValueError('broken here')\n")
    words = pair(folder, edit)
    before = relaunch.fingerprint(folder)
    code, found, _ = proof_verb.proven(tmp_path, folder, *words)
    assert code == EXIT_FAILED
    assert "after: " in found["error"]
    assert "broken here" in found["error"]
    assert relaunch.fingerprint(folder) == before


@pytest.mark.nightly  # by day: tests/unit/prove/test_verdicts.py
def test_the_same_file_twice_is_compared_and_told_if_it_is_too_short(tmp_path: Path, folder: Path) -> None:
    word = command(folder, name="before")
    code, found, _ = proof_verb.proven(tmp_path, folder, "--before", word, "--after", word)
    assert (code, found["verdict"], found["sameness"]["class"]) == (EXIT_FAILED, "not_proven", "bitwise")
    assert "ended after" in found["reason"]
    assert "train longer" in found["reason"]


@pytest.mark.nightly
def test_what_is_another_run_each_time_is_not_proven(tmp_path: Path, folder: Path) -> None:
    seed = "torch.manual_seed(0)\n"
    edit = (seed, "import os\ntorch.manual_seed(int.from_bytes(os.urandom(4), 'big'))\n")
    words = [command(folder, edit, name=name) for name in ("before", "after")]
    code, found, _ = proof_verb.proven(tmp_path, folder, "--before", words[0], "--after", words[1])
    assert (code, found["sameness"]["deterministic"]) in ((EXIT_FAILED, False), (EXIT_REFUSED, False))
    assert found["speed"] is None


@pytest.mark.nightly
def test_a_python_without_torch_is_told(tmp_path: Path, folder: Path) -> None:
    other = tmp_path / "python-other"
    other.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    other.chmod(0o700)
    code, found, _ = proof_verb.proven(tmp_path, folder, *pair(folder, python=str(other)))
    assert code == EXIT_FAILED
    assert "after: " in found["error"]
    assert "torch" in found["error"]


def test_a_python_that_is_not_there_is_told(tmp_path: Path, folder: Path) -> None:
    words = ("--before", command(folder, python="/nowhere/python"), "--after", command(folder))
    code, found, _ = proof_verb.proven(tmp_path, folder, *words)
    assert code != 0
    assert "before: " in found["error"]


@pytest.mark.parametrize(
    ("number", "stage"),
    by_day(
        [(signal.SIGINT, "counting"), (signal.SIGTERM, "counting"), (signal.SIGINT, "start 1")],
        (signal.SIGINT, "start 1").__eq__,
    ),
)
def test_an_interrupted_proof_leaves_nothing(tmp_path: Path, folder: Path, number: int, stage: str) -> None:
    forever = ("    if step == STEPS:\n        break\n", "")
    words = [command(folder, forever, name=name) for name in ("before", "after")]
    before = relaunch.fingerprint(folder)
    process = proof_verb.started(tmp_path, folder, "--before", words[0], "--after", words[1])
    try:
        assert process.stderr is not None
        assert any(stage in line for line in process.stderr)
        os.kill(process.pid, number)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == EXIT_INTERRUPTED
    assert proof_verb.left(tmp_path) == []
    assert relaunch.fingerprint(folder) == before


@pytest.mark.nightly
def test_two_ranks_are_refused_by_a_sentence(tmp_path: Path, folder: Path) -> None:
    job = (str(training.JOBS / "ranks.py"), "--steps", "40")
    word = shlex.join([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", *job])
    code, found, _ = proof_verb.proven(tmp_path, folder, "--before", word, "--after", word)
    assert code == EXIT_FAILED
    assert "2 processes" in found["error"]
