"""Two revisions in folders of their own: as committed, and the repository stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autobrrr.errors import UsageError
from autobrrr.prove.revision_folders import refuse_shared_code, revisions
from autobrrr.relaunch.trial.live_trial import TrialLaunch
from support.outside import repositories
from support.outside.repositories import git
from support.relaunch import fingerprint

SPAN = "main~1..main"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    found = repositories.repository(tmp_path / "top", {"jobs/train.py": "slow"})
    repositories.commit(found, {"jobs/train.py": "fast"})
    return found


def silent(line: str) -> None:
    pass


def test_both_sides_are_as_committed_and_nothing_is_changed(top: Path, tmp_path: Path) -> None:
    (top / "jobs" / "train.py").write_text("dirty")
    (top / "notes").write_text("untracked")
    before, said = fingerprint(top), list[str]()
    base, head = revisions(SPAN, top / "jobs", tmp_path / "place", said.append)
    assert [(each.folder / "train.py").read_text() for each in (base, head)] == ["slow", "fast"]
    assert not (base.target / "notes").exists()
    assert any("not committed" in line for line in said)
    assert fingerprint(top) == before


def test_settings_of_the_repository_leave_nothing_out(top: Path, tmp_path: Path) -> None:
    repositories.commit(top, {".gitattributes": "jobs export-ignore\n", "data/words": "a b"})
    git(top, "sparse-checkout", "set", "data")
    _, head = revisions(SPAN, top, tmp_path / "place", silent)
    assert (head.folder / "jobs" / "train.py").read_text() == "fast"


def test_a_submodule_is_left_out_and_said(top: Path, tmp_path: Path) -> None:
    other = repositories.repository(tmp_path / "other", {"code.py": "1"})
    git(top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "part")
    git(top, "commit", "-q", "-m", "a part")
    said = list[str]()
    _, head = revisions(SPAN, top, tmp_path / "place", said.append)
    assert not (head.folder / "part" / "code.py").exists()
    assert any("submodule" in line for line in said)


def test_without_a_head_it_is_the_current_one(top: Path, tmp_path: Path) -> None:
    _, head = revisions("main~1..", top, tmp_path / "place", silent)
    assert (head.folder / "jobs" / "train.py").read_text() == "fast"


def test_the_command_is_moved_but_for_an_interpreter_that_is_not_tracked(top: Path, tmp_path: Path) -> None:
    (top / "python").write_text("")
    _, head = revisions(SPAN, top, tmp_path / "place", silent)
    path = os.pathsep.join(("src", str(top / "jobs"), "/elsewhere"))
    given = TrialLaunch(command=("./python", "x.py"), environment={"PYTHONPATH": path}, folder=top)
    found = head.launch(given)
    assert (Path(found.command[0]), found.folder) == (top / "python", head.folder)
    assert found.environment["PYTHONPATH"].split(os.pathsep) == [
        "src",
        str(head.target / "jobs"),
        "/elsewhere",
    ]


def test_code_of_the_repository_itself_is_refused(top: Path, tmp_path: Path) -> None:
    refuse_shared_code([str(tmp_path / "topmost"), str(tmp_path)], top)
    with pytest.raises(UsageError, match="jobs"):
        refuse_shared_code([str(top / "jobs")], top)


@pytest.mark.parametrize("span", ["main", "..main", "nowhere..main", "main...main", "--upload..main"])
def test_what_are_no_two_revisions_is_a_usage_error(top: Path, tmp_path: Path, span: str) -> None:
    with pytest.raises(UsageError):
        revisions(span, top, tmp_path / "place", silent)


def test_a_folder_that_one_revision_lacks_is_a_usage_error(top: Path, tmp_path: Path) -> None:
    repositories.commit(top, {"new/train.py": "1"})
    with pytest.raises(UsageError, match="new"):
        revisions(SPAN, top / "new", tmp_path / "place", silent)


def test_outside_of_a_repository_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        revisions("a..b", tmp_path, tmp_path / "place", silent)


def test_a_commit_that_is_not_there_is_named(top: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no commit nowhere"):
        revisions("main..nowhere", top, tmp_path / "place", silent)
