"""What a study that is gone has left is told from what another one still uses."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from autobrrr.relaunch.sandbox import orphans


def test_a_living_study_is_not_swept(tmp_path: Path) -> None:
    assert not orphans.is_gone(orphans.new_token())
    mine = tmp_path / f"{orphans.FOLDER_PREFIX}{orphans.own_name()}"
    mine.mkdir()
    orphans.sweep(tmp_path)
    assert mine.exists()


def test_a_pid_that_was_used_again_is_another_process(tmp_path: Path) -> None:
    pid, ticks, namespace = orphans.own_name().split("-")
    assert orphans.is_gone(f"{pid}-{int(ticks) - 1}-{namespace}-ab")
    gone = tmp_path / f"{orphans.FOLDER_PREFIX}{pid}-{int(ticks) - 1}-{namespace}"
    (gone / "t1").mkdir(parents=True)
    orphans.sweep(tmp_path)
    assert not gone.exists()


def test_temporary_folders_of_a_gone_study_are_swept_and_no_link_is_followed(tmp_path: Path) -> None:
    pid, ticks, namespace = orphans.own_name().split("-")
    place, precious = tmp_path / "tmp", tmp_path / "precious"
    gone = place / f"{orphans.FOLDER_PREFIX}{pid}-{int(ticks) - 1}-{namespace}"
    (gone / "t1/torchelastic_x").mkdir(parents=True)
    (place / "autobrrr-1000").mkdir()  # of a user without a runtime folder
    (precious / "photos").mkdir(parents=True)
    (precious / "photos").chmod(0o755)
    link = place / f"{orphans.FOLDER_PREFIX}{pid}-{int(ticks) - 2}-{namespace}"
    link.symlink_to(precious)
    orphans.sweep(place)
    assert sorted(each.name for each in place.iterdir()) == sorted(["autobrrr-1000", link.name])
    assert (precious / "photos").stat().st_mode & 0o777 == 0o755


def test_of_another_container_s_study_nothing_is_sure(tmp_path: Path) -> None:
    pid, ticks, namespace = orphans.own_name().split("-")
    assert not orphans.is_gone(f"{pid}-{int(ticks) - 1}-{int(namespace) + 1}-ab")
    assert not orphans.is_gone("nonsense")


def test_a_study_of_another_machine_that_shares_the_folder_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    pid, ticks, counting = orphans.own_name().split("-")
    there = tmp_path / f"{orphans.FOLDER_PREFIX}{pid}-{int(ticks) - 1}-{counting}"
    (there / "t1/tree").mkdir(parents=True)
    monkeypatch.setattr(socket, "gethostname", lambda: "node2")
    orphans.sweep(tmp_path)
    assert there.exists()
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    orphans.sweep(tmp_path)
    assert not there.exists()


def test_processes_are_found_by_the_word_in_their_environment(tmp_path: Path) -> None:
    for pid, text in ((11, b"A=1\0AUTOBRRR_TRIAL=x-1\0"), (12, b"AUTOBRRR_TRIAL=y-2\0"), (13, b"A=\xff\0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(text)
    (tmp_path / "self").mkdir()
    assert sorted(orphans.found(proc=tmp_path)) == [(11, "x-1"), (12, "y-2")]
    assert list(orphans.found("y-2", tmp_path)) == [(12, "y-2")]
    assert orphans.own_name().startswith(f"{os.getpid()}-")
