"""The folder inside the target: private, gone at the end, swept after a kill."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from autobrrr.attach.target_folder import TargetFolder, sweep


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of process 42, with a /tmp as it should be."""
    made = tmp_path / "42" / "root"
    (made / "var" / "tmp").mkdir(parents=True)
    (made / "tmp").mkdir()
    (made / "tmp").chmod(0o1777)
    return made


def enter(proc: Path) -> closing[TargetFolder]:
    return closing(TargetFolder(42, proc=proc))


def test_a_place_is_private_and_leaves_nothing(tmp_path: Path, root: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    with enter(tmp_path) as place:
        folder = root / place.path.lstrip("/")
        place.write("boot.json", b"{}")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "boot.json").stat().st_mode) == 0o600
        assert stat.S_IMODE((folder / "link.sock").stat().st_mode) == 0o600
        assert (folder / "boot.json").read_bytes() == b"{}"
        assert place.said("failed") is None
        (folder / "failed").symlink_to("why\nit failed")
        assert place.said("failed") == "why\nit failed"
        (folder / "taken").write_text("no link")
        assert place.said("taken") is None
        (folder / "source").symlink_to(precious)
    assert list((root / "tmp").iterdir()) == []
    assert precious.read_text() == "kept"


def test_a_link_where_tmp_should_be_leads_nowhere_outside(tmp_path: Path, root: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / "tmp").rmdir()
    (root / "tmp").symlink_to(elsewhere)
    with enter(tmp_path) as place:
        assert place.path.startswith("/var/tmp/")
        assert list(elsewhere.iterdir()) == []


@pytest.fixture
def killed(tmp_path: Path, root: Path) -> str:
    """The name of the folder of an attach that was killed in the middle."""
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom autobrrr.attach.target_folder import TargetFolder\n"
        "place = TargetFolder(42, proc=Path(sys.argv[1]))\n"
        "place.write('boot.json', b'{}')\nos.kill(os.getpid(), 9)\n"
    )
    package = str(Path(__file__).resolve().parents[3])
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": package}, check=False
    )
    (left,) = (root / "tmp").iterdir()
    return left.name


def test_what_a_killed_attach_left_is_swept_by_the_next(tmp_path: Path, root: Path, killed: str) -> None:
    assert sweep(42, tmp_path) == [killed]
    assert list((root / "tmp").iterdir()) == []


def test_a_place_in_use_and_what_is_none_of_ours_are_not_swept(tmp_path: Path, root: Path) -> None:
    (root / "tmp" / "autobrrr-notes").mkdir()
    (root / "tmp" / f"autobrrr-{os.geteuid()}-0123456789abcdef").write_text("a file of that name")
    (root / "tmp" / f"autobrrr-{os.geteuid() + 1}-0123456789abcdef").mkdir()
    with enter(tmp_path):
        before = sorted(os.listdir(root / "tmp"))
        assert sweep(42, tmp_path) == []
        assert sorted(os.listdir(root / "tmp")) == before
