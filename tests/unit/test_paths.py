"""Files lie where the XDG rules say, and folders of sockets are private."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autobrrr import paths
from autobrrr.errors import AutobrrrError


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
    env = {"XDG_STATE_HOME": str(theirs), "XDG_RUNTIME_DIR": str(theirs), "HOME": str(theirs)}
    assert paths.state_dir(env) == own / ".local/state/autobrrr"
    assert paths.cache_dir(env) == own / ".cache/autobrrr"
    assert paths.runtime_dirs(env)[0] == Path("/tmp/autobrrr-0")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a folder somebody else's")
def test_root_puts_no_temporary_files_where_somebody_else_may_swap_them(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    assert paths.temporary_dir({"TMPDIR": str(theirs)}) == theirs
    os.chown(theirs, 4321, 4321)
    assert paths.temporary_dir({"TMPDIR": str(theirs)}) == paths.TMP
    assert paths.temporary_dir({"TMPDIR": "relative"}) == paths.TMP
    assert paths.temporary_dir({}) == paths.TMP
