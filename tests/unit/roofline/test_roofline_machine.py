"""The machine is read from files under a root, and calibrations of different machines lie apart."""

from __future__ import annotations

import os
from pathlib import Path

from autobrrr.roofline.machine_identity import accelerators, read_machine


def caches(root: Path, **sizes: str) -> None:
    for index, (level, size) in enumerate(sizes.items()):
        folder = root / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        (folder / "level").write_text(level.removeprefix("l") + "\n")
        (folder / "size").write_text(size + "\n")


def test_a_machine_has_a_name_cores_and_a_last_cache(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "processor : 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n"
    )
    caches(tmp_path, l1="32K", l2="2M", l3="33M")
    found = read_machine(tmp_path)
    cores = len(os.sched_getaffinity(0))
    assert (found.name, found.cores, found.last_cache_bytes) == ("Some CPU @ 2 GHz", cores, 33 << 20)
    assert found.title == f"Some CPU @ 2 GHz, {cores} cores"


def test_drivers_name_their_devices(tmp_path: Path) -> None:
    assert accelerators(tmp_path) == []
    gpu = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t\t NVIDIA L4\nIRQ: 5\n")
    assert accelerators(tmp_path) == ["NVIDIA L4"]
