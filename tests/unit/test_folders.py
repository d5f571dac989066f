"""Paths stay inside their root; locks and sockets are ours; nothing keeps us waiting."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from autobrrr import folders
from autobrrr.folders import peer_uid


def test_a_path_is_looked_up_in_the_root_of_its_process_and_over_no_link(tmp_path: Path) -> None:
    inside = tmp_path / "42" / "root"
    (inside / "var" / "tmp").mkdir(parents=True)
    (inside / "var" / "tmp" / "here").write_text("")
    (tmp_path / "outside").mkdir()
    (inside / "up").symlink_to("../../outside")
    (inside / "absolute").symlink_to(tmp_path / "outside")
    fd = folders.open_in(42, "/var/tmp", os.O_RDONLY | os.O_DIRECTORY, tmp_path)
    assert os.listdir(fd) == ["here"]
    os.close(fd)
    for escape in ("up", "absolute", "absolute/x", "../outside", "var/../../outside", "none", "a\0b"):
        with pytest.raises(OSError):
            os.close(folders.open_in(42, escape, os.O_RDONLY, tmp_path))


def test_whatever_the_umask_a_socket_is_never_open_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        door = folders.listen(tmp_path / "door", 1)
    finally:
        os.umask(before)
    with door:
        assert (tmp_path / "door").stat().st_mode & 0o777 == 0o600
        with folders.connect(tmp_path / "door") as link:
            assert peer_uid(link) == os.geteuid()
        (tmp_path / "link").symlink_to("door")
        with pytest.raises(ConnectionRefusedError):
            folders.connect(tmp_path / "link")
        monkeypatch.setattr(folders, "peer_uid", lambda link: 4242)
        with pytest.raises(PermissionError, match="uid 4242 answers"):
            folders.connect(tmp_path / "door")


def test_what_is_no_plain_file_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open the device of a watchdog reboots the machine."""
    os.mkfifo(tmp_path / "pipe")
    opened: list[int] = []
    really = os.open

    def spied(name: str, flags: int) -> int:
        opened.append(flags)
        return really(name, flags)

    monkeypatch.setattr(os, "open", spied)
    with pytest.raises(folders.NotPlain):
        folders.open_plain(tmp_path / "pipe")
    assert all(flags & os.O_PATH for flags in opened)


def test_a_lock_has_one_holder_and_dies_with_it(tmp_path: Path) -> None:
    file = tmp_path / "a.lock"
    assert not folders.is_locked(file)
    first = folders.lock(file)
    assert first is not None
    assert folders.lock(file) is None
    assert folders.is_locked(file)
    assert folders.is_locked(file), "looking does not take it"
    os.close(first)
    assert not folders.is_locked(file)
    second = folders.lock(file)
    assert second is not None
    folders.unlock(file, second)
    assert list(tmp_path.iterdir()) == []


def test_a_locked_folder_that_can_not_get_its_name_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="full"):
        folders.make_held(tmp_path / "held")
    assert os.listdir(tmp_path) == []
