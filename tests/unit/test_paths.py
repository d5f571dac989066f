"""Files lie where the XDG rules say, and folders of sockets are private."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from autobrrr import paths
from autobrrr.errors import AutobrrrError
from autobrrr.records import Record
from autobrrr.roofline.calibration_cache import keep


class Line(Record):
    """Something to keep."""


def test_sockets_lie_in_the_runtime_folder_of_the_session(tmp_path: Path) -> None:
    assert paths.runtime_dir({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "autobrrr"


@pytest.mark.parametrize("value", ["", "relative/path", "/no/such/folder"])
def test_without_a_usable_runtime_folder_they_lie_in_a_folder_per_user(value: str) -> None:
    assert paths.runtime_dirs({"XDG_RUNTIME_DIR": value})[0] == Path(f"/tmp/autobrrr-{os.geteuid()}")


def test_logs_and_calibrations_follow_xdg_or_home() -> None:
    assert paths.state_dir({"XDG_STATE_HOME": "/s"}) == Path("/s/autobrrr")
    assert paths.state_dir({"HOME": "/h"}) == Path("/h/.local/state/autobrrr")
    assert paths.cache_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/autobrrr")
    assert paths.cache_dir({"HOME": "/h", "XDG_CACHE_HOME": "not/absolute"}) == Path("/h/.cache/autobrrr")


def test_a_reused_pid_gets_another_socket(tmp_path: Path) -> None:
    assert paths.session_socket(7, 1, tmp_path) != paths.session_socket(7, 2, tmp_path)


def test_a_private_folder_is_made_and_found_again(tmp_path: Path) -> None:
    folder = paths.make_private(tmp_path / "a" / "b")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert paths.make_private(folder) == folder


def test_a_folder_that_others_can_enter_is_refused_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(AutobrrrError) as caught:
        paths.make_private(tmp_path / "open")
    assert "XDG_RUNTIME_DIR" in caught.value.hint


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(AutobrrrError, match="not a folder"):
        paths.make_private(tmp_path / "link")


def test_folders_of_autobrrr_may_share_a_place_whichever_comes_first(tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    keep(paths.cache_dir(env) / "peaks" / "file.json", Line())
    assert paths.make_private(paths.runtime_dir(env)) == paths.cache_dir(env)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a rule for root")


@needs_root
@pytest.mark.parametrize("way", ["owned", "writable", "through a link", "between links"])
def test_root_keeps_nothing_where_somebody_else_decides_what_lies_there(way: str, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    if way == "owned":
        os.chown(theirs, 23456, 23456)
    elif way == "writable":
        theirs.chmod(0o777)
    elif way == "between links":  # a link of root's over one of theirs to a folder of root's
        (theirs / "now").symlink_to(tmp_path)
        os.chown(theirs, 23456, 23456)
        theirs = tmp_path / "link"
        theirs.symlink_to(tmp_path / "theirs" / "now")
    else:
        theirs.rmdir()
        (tmp_path / "real").mkdir()
        os.chown(tmp_path / "real", 23456, 23456)
        theirs.symlink_to(tmp_path / "real")
    own = paths.home_of(0)
    assert own is not None
    env = {"XDG_STATE_HOME": str(theirs), "XDG_RUNTIME_DIR": str(theirs), "HOME": str(theirs)}
    assert paths.state_dir(env) == own / ".local/state/autobrrr"
    assert paths.cache_dir(env) == own / ".cache/autobrrr"
    assert paths.runtime_dirs(env)[0] == Path("/tmp/autobrrr-0")


@needs_root
@pytest.mark.parametrize("uid", [0, 34567])
def test_a_folder_that_somebody_else_has_made_where_all_may_is_not_used(
    uid: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies in the cache is run in the job."""
    own = tmp_path / "home"
    own.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(paths, "home_of", lambda uid: own)
    tmp_path.chmod(0o1777)
    env = {"XDG_CACHE_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    theirs = tmp_path / "autobrrr"
    theirs.mkdir(mode=0o700)
    assert paths.cache_dir(env) == theirs  # root's
    os.chown(theirs, 23456, 23456)
    assert paths.cache_dir(env) == own / ".cache/autobrrr"
    assert paths.state_dir(env) == own / ".local/state/autobrrr"
    theirs.rename(tmp_path / "real")
    theirs.symlink_to(tmp_path / "real")  # a link of root's to a folder of theirs
    assert paths.cache_dir(env) == own / ".cache/autobrrr"


@needs_root
def test_root_makes_no_folder_where_somebody_else_may_make_it_first(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    own = paths.home_of(0)
    assert own is not None
    assert paths.cache_dir({"XDG_CACHE_HOME": str(tmp_path)}) == own / ".cache/autobrrr"


@needs_root
def test_a_name_that_somebody_else_has_taken_in_tmp_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as made:
        monkeypatch.setattr(paths, "TMP", Path(made))
        assert paths.runtime_dir({}) == Path(made) / "autobrrr-0"
        (Path(made) / "autobrrr-0").mkdir(mode=0o700)
        assert paths.runtime_dir({}) == Path(made) / "autobrrr-0"
        os.chown(Path(made) / "autobrrr-0", 23456, 23456)
        own = paths.home_of(0)
        assert own is not None
        assert paths.runtime_dir({}) == own / ".local/state/autobrrr/run"


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AutobrrrError, match="is not a folder") as caught:
        paths.make_private(tmp_path / "file")
    assert "XDG_RUNTIME_DIR" in caught.value.hint
    with pytest.raises(AutobrrrError, match="can't be made: Not a directory"):
        paths.make_private(tmp_path / "file" / "below")


def test_a_folder_that_can_not_be_written_says_why(tmp_path: Path) -> None:
    assert paths.why_unwritable(tmp_path / "new" / "folder") is None
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").write_text("")
    assert paths.why_unwritable(tmp_path / "file") == f"{tmp_path / 'file'}: Not a directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a folder somebody else's")
def test_root_puts_no_temporary_files_where_somebody_else_may_swap_them(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    assert paths.temporary_dir({"TMPDIR": str(theirs)}) == theirs
    os.chown(theirs, 4321, 4321)
    assert paths.temporary_dir({"TMPDIR": str(theirs)}) == paths.TMP
    assert paths.temporary_dir({"TMPDIR": "relative"}) == paths.TMP
    assert paths.temporary_dir({}) == paths.TMP


@pytest.mark.parametrize("base", ["", "relative"])
def test_a_folder_of_sockets_is_found_from_a_folder_that_is_gone(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert paths.runtime_dirs({"XDG_RUNTIME_DIR": base})[0] == Path("/tmp/autobrrr-0")
