"""One rank of a job is measured at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from autobrrr.sidecar.turn import RankTurn


def test_one_holds_the_turn_until_it_gives_it(tmp_path: Path) -> None:
    first, second = RankTurn(tmp_path, "a1"), RankTurn(tmp_path, "a1")
    assert first.take()
    assert first.take()  # it still is
    assert not second.take()
    assert (first.elsewhere(), second.elsewhere()) == (False, True)
    first.give()
    assert not second.elsewhere()
    assert second.take()
    assert not first.take()
    second.give()
    assert not list(tmp_path.iterdir())


def test_another_job_has_a_turn_of_its_own(tmp_path: Path) -> None:
    one, other = RankTurn(tmp_path, "a1"), RankTurn(tmp_path, "b2")
    assert one.take()
    assert other.take()
    one.give()
    other.give()


def test_to_give_what_one_does_not_hold_takes_it_from_nobody(tmp_path: Path) -> None:
    first, second = RankTurn(tmp_path, "a1"), RankTurn(tmp_path, "a1")
    assert first.take()
    second.give()
    assert not second.take()
    first.give()


def test_the_turn_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom autobrrr.sidecar.turn import RankTurn\n"
        "turn = RankTurn(Path(sys.argv[1]), 'a1')\nassert turn.take()\nos.kill(os.getpid(), 9)\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": root}, check=False
    )
    assert killed.returncode == -9
    assert list(tmp_path.iterdir())  # its file is still there
    turn = RankTurn(tmp_path, "a1")
    assert not turn.elsewhere()
    assert turn.take()
    turn.give()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_holds_nobody_up(tmp_path: Path) -> None:
    turn = RankTurn(tmp_path / "none", "a1")
    assert not turn.elsewhere()
    assert turn.take()
    turn.give()
