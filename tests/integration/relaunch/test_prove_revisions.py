"""`prove --git` as a user calls it: both sides as they were committed, and the repository as it was."""

import sys
from pathlib import Path

import pytest

from autobrrr.errors import EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE
from support import proof_verb, relaunch
from support.outside.repositories import commit, repository
from support.proof_scripts import BACKWARD, SCRIPT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SPAN = "main~1..main"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """`main~1` trains, `main` skips every second backward call, and the working tree trains."""
    found = repository(tmp_path / "top", {".gitignore": "*.pt\nsettings.py\n", "train.py": SCRIPT})
    commit(found, {"train.py": SCRIPT.replace(BACKWARD, f"    if step % 2 == 0:\n    {BACKWARD}")})
    (found / "train.py").write_text(SCRIPT)
    return found


def test_committed_sides_are_judged_and_nothing_is_touched(tmp_path: Path, top: Path) -> None:
    (top / "model.pt").write_text("ignored")
    before = relaunch.fingerprint(top)
    words = ("--git", SPAN, "--", sys.executable, "train.py", proof_verb.STEPS)
    code, found, said = proof_verb.proven(tmp_path, top, *words)
    assert (code, found["refusals"][0]["code"]) == (EXIT_REFUSED, "skipped_backward")
    assert "not committed" in said
    assert relaunch.fingerprint(top) == before


@pytest.mark.nightly
def test_a_file_that_is_not_tracked_is_missed_aloud(tmp_path: Path, top: Path) -> None:
    (top / "settings.py").write_text("RATE = 1\n")
    commit(top, {"train.py": f"import settings\n{SCRIPT}"})
    words = ("--git", SPAN, "--", sys.executable, "train.py", proof_verb.STEPS)
    code, found, said = proof_verb.proven(tmp_path, top, *words)
    assert code == EXIT_FAILED
    assert "after: " in found["error"]
    assert "settings" in found["error"]
    assert "not tracked" in said


@pytest.mark.nightly
def test_code_of_the_working_tree_on_both_sides_is_refused(tmp_path: Path, top: Path) -> None:
    words = ("--git", SPAN, "--", sys.executable, str(top / "train.py"), proof_verb.STEPS)
    code, found, _ = proof_verb.proven(tmp_path, top, *words)
    assert code == EXIT_USAGE
    assert str(top) in found["error"]
