"""Control groups of both versions, in a made-up /proc and a made-up /sys/fs/cgroup."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr.machine import control_groups as groups
from support.machines.fake_proc import FakeProc

PID = 4242
MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "groups").mkdir()
    return tmp_path / "groups"


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def process(tmp_path: Path, lines: str) -> Path:
    proc = tmp_path / "proc"
    folder = FakeProc(proc).add(PID)
    (folder / "cgroup").write_text(lines)
    return proc


def memory2(most: object, taken: int, dropped: int = 0) -> dict[str, object]:
    stat = f"anon 7\ninactive_file {dropped}\nactive_file 0"
    return {"memory__max": most, "memory__current": taken, "memory__stat": stat}


def test_the_narrowest_of_all_groups_above_counts(tmp_path: Path, root: Path) -> None:
    proc = process(tmp_path, "0::/slice/job\n")
    (root / "cgroup.controllers").touch()
    group(root / "slice", **memory2(100 * MIB, 90 * MIB, MIB))
    group(root / "slice" / "job", **memory2("max", 40 * MIB))
    assert groups.spare_memory_bytes(PID, proc, root) == 11 * MIB


def test_version_one_beside_version_two(tmp_path: Path, root: Path) -> None:
    proc = process(tmp_path, "4:memory:/job\n0::/elsewhere\n")
    (root / "unified" / "elsewhere").mkdir(parents=True)
    group(
        root / "memory" / "job",
        memory__limit_in_bytes=50 * MIB,
        memory__usage_in_bytes=50 * MIB,
        memory__stat=f"inactive_file 9\ntotal_inactive_file {2 * MIB}\ntotal_active_file {MIB}",
    )
    group(root / "memory", memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=1)
    assert groups.spare_memory_bytes(PID, proc, root) == 3 * MIB


def test_the_fewest_threads_of_all_groups_count(tmp_path: Path, root: Path) -> None:
    proc = process(tmp_path, "8:pids:/slice/job\n")
    group(root / "pids" / "slice", pids__max=100, pids__current=99)
    group(root / "pids" / "slice" / "job", pids__max="max", pids__current=7)
    assert groups.spare_tasks(PID, proc, root) == (1, 100)


@pytest.mark.parametrize(("state", "frozen"), [("FROZEN", True), ("FREEZING", True), ("THAWED", False)])
def test_the_freezer_of_version_one(state: str, frozen: bool, tmp_path: Path, root: Path) -> None:
    group(root / "freezer" / "job", freezer__state=state)
    assert groups.is_frozen(PID, process(tmp_path, "6:freezer:/job\n"), root) is frozen
