"""Files that the user has named are written anew, and a new one whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr.cli import printed
from autobrrr.errors import AutobrrrError


def test_a_file_is_written_anew_whatever_was_longer_there(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    for text in ("one\n", "a longer text\n", "ä\n", ""):
        printed.write_file(file, text)
        assert file.read_text(encoding="utf-8") == text
    link = tmp_path / "link"
    link.symlink_to(file)
    printed.write_file(link, "through the link")
    assert link.is_symlink()
    assert file.read_text() == "through the link"


def test_a_full_disk_leaves_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = tmp_path / "new.toml"

    def full(path: Path, data: bytes) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(AutobrrrError, match="No space left"):
        printed.write_file(new, "another text")
    assert not new.exists()
