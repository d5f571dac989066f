"""One rank of a job is measured at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autobrrr import folders, paths
from autobrrr.sidecar.session.rank_turn import TURN_NS, RankLock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return paths.make_private(tmp_path / "run")


def test_one_holds_the_turn_until_it_gives_it(folder: Path) -> None:
    first, second = RankLock(folder, "a1"), RankLock(folder, "a1")
    assert first.take(0)
    assert first.take(0)  # it still is
    assert not second.take(0)
    assert (first.elsewhere(0), second.elsewhere(0)) == (False, True)
    assert not second.take(TURN_NS - 1)
    assert second.take(TURN_NS)  # it is not waited for any longer
    first.give()
    assert not second.elsewhere(0)
    assert second.take(0)
    assert not first.take(0)
    second.give()
    assert not os.listdir(folder)


def test_a_turn_that_is_given_away_just_after_it_was_refused_is_not_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = RankLock(folder, "a1"), RankLock(folder, "a1")
    assert first.take(0)
    monkeypatch.setattr(folders, "is_locked", lambda path: False)
    assert not second.take(0)


def test_the_turn_of_a_process_that_was_killed_is_free(folder: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from autobrrr.sidecar.session.rank_turn import RankLock\n"
        "turn = RankLock(Path(sys.argv[1]), 'a1')\n"
        "assert turn.take(0)\nos.kill(os.getpid(), 9)\n"
    )
    root = str(Path(__file__).resolve().parents[3])
    killed = subprocess.run(
        [sys.executable, "-c", code, str(folder)], env={**os.environ, "PYTHONPATH": root}, check=False
    )
    assert killed.returncode == -9
    assert os.listdir(folder)  # its file is still there
    turn = RankLock(folder, "a1")
    assert not turn.elsewhere(0)
    assert turn.take(0)
    turn.give()
    assert not os.listdir(folder)
