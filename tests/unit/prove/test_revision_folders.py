"""Two revisions in folders of their own: as committed, and the repository stays as it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from autobrrr.errors import UsageError
from autobrrr.prove.revision_folders import revision_folders
from support.relaunch import fingerprint


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "repository"
    (top / "jobs").mkdir(parents=True)
    git(top, "init", "-q", "-b", "main")
    for text in ("slow", "fast"):
        (top / "jobs" / "train.py").write_text(text)
        git(top, "add", "-A")
        git(top, "commit", "-q", "-m", text)
    return top


def git(top: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(top), *who, *words], check=True, env={"PATH": os.environ["PATH"]})


def test_both_sides_are_as_committed_and_nothing_is_changed(repository: Path, tmp_path: Path) -> None:
    (repository / "jobs" / "train.py").write_text("dirty")
    (repository / "notes").write_text("untracked")
    before, said = fingerprint(repository), list[str]()
    base, head = revision_folders("main~1..main", repository / "jobs", tmp_path / "place", said.append)
    assert [(each / "train.py").read_text() for each in (base, head)] == ["slow", "fast"]
    assert not (base.parent / "notes").exists()
    assert any("not committed" in line for line in said)
    index = ".git/index"  # git status refreshes it
    assert {k: v for k, v in fingerprint(repository).items() if k != index} == {
        k: v for k, v in before.items() if k != index
    }


def test_without_a_head_it_is_the_current_one(repository: Path, tmp_path: Path) -> None:
    _, head = revision_folders("main~1..", repository, tmp_path / "place", lambda line: None)
    assert (head / "jobs" / "train.py").read_text() == "fast"


@pytest.mark.parametrize("span", ["main", "..main", "nowhere..main", "main...main", "--upload..main"])
def test_what_are_no_two_revisions_is_a_usage_error(repository: Path, tmp_path: Path, span: str) -> None:
    with pytest.raises(UsageError):
        revision_folders(span, repository, tmp_path / "place", lambda line: None)


def test_outside_of_a_repository_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        revision_folders("a..b", tmp_path, tmp_path / "place", lambda line: None)
