"""Which folders of a file system can be under an overlay, read from mountinfo and a tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autobrrr.relaunch.sandbox import overlay_mounts

INFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 25 0:27 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw
31 27 0:40 / /data/my\040set ro,noexec - xfs /dev/vdb rw
32 27 0:41 / /home rw,nosuid - ext4 /dev/vdc rw
33 32 0:42 / /home rw,nodev - nfs server:/home rw
"""


def test_mounts_come_from_the_root_on() -> None:
    found = overlay_mounts.mounts(INFO)
    assert [mount.at for mount in found] == ["/", "/home", "/home", "/proc", "/data/my set", "/dev/shm"]
    assert {mount.at for mount in found if not mount.is_writable} == {"/data/my set"}
    assert found[4].flags == overlay_mounts.MS_NOEXEC


def test_a_mount_is_seen_where_its_place_leads_to_it() -> None:
    here = overlay_mounts.mounts(Path("/proc/self/mountinfo").read_text())
    seen = [mount for mount in here if mount.is_seen]
    assert [mount.at for mount in seen].count("/") == 1
    assert not replace(seen[0], number="0").is_seen
    assert not replace(seen[0], at="/no/such/place").is_seen


def test_a_refused_overlay_is_in_nobody_s_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, at: str, *_: object) -> None:
        if at.endswith("refuses"):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(overlay_mounts, "_mount", refuse)
    for name in ("home", "refuses", "takes"):
        (tmp_path / name).mkdir()
    home = str(tmp_path / "home")
    assert overlay_mounts._overlay(str(tmp_path / "refuses"), home) == {}
    found = overlay_mounts._overlay(str(tmp_path / "takes"), home)
    assert list(found) == [str(tmp_path / "takes")]


def test_a_folder_without_mounts_inside_is_one_target(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert list(overlay_mounts.targets(str(tmp_path), [str(tmp_path), "/elsewhere"])) == [str(tmp_path)]


def test_around_a_mount_the_folders_beside_it_are_targets(tmp_path: Path) -> None:
    for name in ("a/mounted", "a/beside", "b/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "b")
    (tmp_path / "file").write_text("")
    found = list(overlay_mounts.targets(str(tmp_path), [str(tmp_path), str(tmp_path / "a/mounted")]))
    assert found == [str(tmp_path / "a/beside"), str(tmp_path / "b")]


def test_what_a_trial_wrote_is_copied_under_its_own_names(tmp_path: Path) -> None:
    written = tmp_path / "upper"
    (written / "runs" / "__pycache__").mkdir(parents=True)
    (written / "runs" / "model.pt").write_bytes(b"weights")
    (written / "runs" / "__pycache__" / "x.pyc").write_bytes(b"code")
    (written / "runs" / "link").symlink_to("model.pt")
    assert overlay_mounts.copy_out({"/home/me": str(written)}, str(tmp_path / "kept")) == 1
    assert (tmp_path / "kept/home/me/runs/model.pt").read_bytes() == b"weights"
