"""Files that the user has named are written whole, or stay as they were."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from autobrrr.cli import output_file
from autobrrr.errors import AutobrrrError


def full(fd: int, start: int, length: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_file_is_written_anew_whatever_was_longer_there(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    for text in ("one\n", "a longer text\n", "ä\n", ""):
        output_file.write_file(file, text)
        assert file.read_text(encoding="utf-8") == text
    link = tmp_path / "link"
    link.symlink_to(file)
    output_file.write_file(link, "through the link")
    assert link.is_symlink()
    assert file.read_text() == "through the link"


def test_a_full_disk_leaves_what_was_there_and_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    kept, new = tmp_path / "kept.toml", tmp_path / "new.toml"
    kept.write_text("what was there")
    for file in (kept, new):
        with pytest.raises(AutobrrrError, match="No space left"):
            output_file.write_file(file, "another text")
    assert kept.read_text() == "what was there"
    assert not new.exists()


def test_what_is_no_file_is_written_to() -> None:
    output_file.write_file("/dev/null", "gone")


@pytest.mark.parametrize("number", [errno.EBADF, errno.EOPNOTSUPP])
def test_a_file_is_written_over_where_no_room_can_be_reserved(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(fd: int, start: int, length: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuses)
    file = tmp_path / "recipe.toml"
    for text in ("a longer text", "one"):
        output_file.write_file(file, text)
        assert file.read_text() == text
