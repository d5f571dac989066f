"""Files lie where the XDG rules say, and folders of sockets are private."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr import paths
from autobrrr.errors import AutobrrrError


def test_sockets_lie_in_the_runtime_folder_of_the_session(tmp_path: Path) -> None:
    assert paths.runtime_dir({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "autobrrr"


@pytest.mark.parametrize("value", ["", "relative/path", "/no/such/folder"])
def test_without_a_usable_runtime_folder_they_lie_in_a_folder_per_user(value: str) -> None:
    assert paths.runtime_dir({"XDG_RUNTIME_DIR": value}, uid=1234) == Path("/tmp/autobrrr-1234")


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
    assert caught.value.hint.startswith("chmod 700")


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(AutobrrrError, match="not a folder"):
        paths.make_private(tmp_path / "link")
