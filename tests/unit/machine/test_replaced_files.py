"""Files that an upgrade has replaced while a job has them mapped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autobrrr.machine import job_files, process_maps
from support.machines.fake_proc import FakeProc

PID = 4711


def a_library(tmp_path: Path, mapped: int | None = None) -> tuple[Path, process_maps.Mapping]:
    """A process that has one file mapped, whose path was taken off it; no `map_files` is to be had."""
    proc, file = FakeProc(tmp_path), tmp_path / "libc.so.6"
    file.write_bytes(b"another build")
    inode = file.stat().st_ino if mapped is None else mapped
    folder = proc.add(PID)
    (folder / "maps").write_text(f"7f0000000000-7f0000001000 r--p 00000000 08:01 {inode} {file} (deleted)\n")
    (folder / "root").symlink_to("/")
    (mapping,) = process_maps.read(PID, proc.root)
    assert mapping.path == str(file)
    return proc.root, mapping


def test_another_file_at_its_path_is_not_taken_for_what_is_mapped(tmp_path: Path) -> None:
    proc, mapping = a_library(tmp_path, mapped=1)
    with pytest.raises(job_files.Unreadable, match="was replaced"):
        process_maps.opened(PID, mapping, proc).__enter__()


def test_the_same_file_at_its_path_is(tmp_path: Path) -> None:
    """A network's file system calls files deleted that are there."""
    proc, mapping = a_library(tmp_path)
    with process_maps.opened(PID, mapping, proc) as fd:
        assert os.read(fd, 7) == b"another"
