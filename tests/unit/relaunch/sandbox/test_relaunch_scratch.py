"""What is copied of a working folder: all of it within a limit, the largest folders read-only beyond."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autobrrr.errors import UsageError
from autobrrr.relaunch.sandbox import workdir_copy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    for path, size in {
        "train.py": 10,
        "src/model.py": 20,
        "src/deep/layer.py": 30,
        "data/a.bin": 5000,
        "data/b.bin": 5000,
        "runs/log": 100,
        ".git/objects/x": 9000,
    }.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(b"x" * size)
    (work / "latest").symlink_to("runs")
    os.mkfifo(work / "pipe")
    return work


def test_within_the_limit_all_but_version_control_is_copied(folder: Path, tmp_path: Path) -> None:
    chosen = workdir_copy.plan(str(folder), 20_000)
    assert chosen.read_only == (".git",)
    assert chosen.bytes == 10_160
    (tmp_path / "copy").mkdir()
    known = workdir_copy.copy(chosen, str(tmp_path / "copy"))
    copied = tmp_path / "copy"
    assert sorted(known) == [
        "data/a.bin",
        "data/b.bin",
        "runs/log",
        "src/deep/layer.py",
        "src/model.py",
        "train.py",
    ]
    for path, (size, time_ns) in known.items():
        theirs, ours = (folder / path).stat(), (copied / path).stat()
        assert (theirs.st_size, theirs.st_mtime_ns) == (ours.st_size, ours.st_mtime_ns) == (size, time_ns)
        assert theirs.st_ino != ours.st_ino
    assert os.readlink(copied / "latest") == "runs"
    assert list((copied / ".git").iterdir()) == []
    assert not (copied / "pipe").exists()


def test_beyond_the_limit_the_largest_folder_stays_where_it_is(folder: Path, tmp_path: Path) -> None:
    chosen = workdir_copy.plan(str(folder), 1000)
    assert chosen.read_only == (".git", "data")
    assert chosen.bytes == 160
    (tmp_path / "copy").mkdir()
    assert "data/a.bin" not in workdir_copy.copy(chosen, str(tmp_path / "copy"))
    assert list((tmp_path / "copy/data").iterdir()) == []
    assert workdir_copy.told(chosen).endswith("(5 files, 0.0 MiB; .git/, data/ read-only)")


def test_too_many_files_count_as_too_large(folder: Path) -> None:
    assert workdir_copy.plan(str(folder), 1 << 30, most_files=4).read_only == (".git", "data", "src")
    with pytest.raises(workdir_copy.TooLarge, match="2 files, 0 MiB besides its folders"):
        workdir_copy.plan(str(folder), 1 << 30, most_files=1)


def test_a_copy_below_the_folder_is_no_part_of_itself(folder: Path) -> None:
    place = folder / "src/scratch/t1"
    place.mkdir(parents=True)
    chosen = workdir_copy.plan(str(folder), 20_000, apart=str(place.parent))
    assert chosen.read_only == (".git", "src/scratch")
    assert "src/model.py" in workdir_copy.copy(chosen, str(place))
    assert not (place / "src/scratch/t1").exists()


def test_a_folder_that_is_too_large_by_itself_is_refused(folder: Path) -> None:
    with pytest.raises(workdir_copy.TooLarge):
        workdir_copy.plan(str(folder), 9)


def test_a_copy_goes_also_where_the_trial_shut_its_folders(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    place.mkdir()
    workdir_copy.copy(workdir_copy.plan(str(folder), 20_000), str(place))
    (place / "src/deep").chmod(0)
    (place / "src").chmod(0o500)
    workdir_copy.remove(str(place))
    assert not place.exists()
    workdir_copy.remove(str(place))


@pytest.mark.parametrize(("text", "size"), [("2G", 2 << 30), ("500M", 500 << 20), ("1.5kB", 1536), ("0", 0)])
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    from autobrrr.cli import tune_script

    assert tune_script._bytes(text) == size
    with pytest.raises(UsageError):
        tune_script._bytes(f"x{text}")
