"""What fills torch's cache beside the job: the job finds whole files there, or none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autobrrr.attach.job_python import run_bounded
from autobrrr.op_replay.fill_cache import PART, _whole


class Builder:
    """As torch's CppBuilder, as far as a build needs it."""

    def __init__(self, target: Path) -> None:
        self._target, self._output = str(target), f"-o {target}"

    def get_target_file_path(self) -> str:
        return self._target


def test_a_file_gets_its_name_once_it_is_whole(tmp_path: Path) -> None:
    builder, target = Builder(tmp_path / "kernel.so"), tmp_path / "kernel.so"
    seen: list[bool] = []

    def build(given: Builder) -> None:
        Path(given._output.removeprefix("-o ")).write_text("whole")
        seen.append(target.exists())

    _whole(build)(builder)
    assert (seen, target.read_text(), builder._output) == ([False], "whole", f"-o {target}")

    def fails(given: Builder) -> None:
        raise RuntimeError("no compiler")

    other = Builder(tmp_path / "other.so")
    with pytest.raises(RuntimeError, match="no compiler"):
        _whole(fails)(other)
    assert not (tmp_path / f"other.so{PART}").exists()
    assert other._output == f"-o {tmp_path / 'other.so'}"


def test_a_program_that_takes_too_long_may_take_away_what_it_has_half_written(tmp_path: Path) -> None:
    half = tmp_path / "half"
    code = (
        "import os, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (os.unlink({str(half)!r}), sys.exit()))\n"
        f"open({str(half)!r}, 'w').close()\n"
        "time.sleep(60)\n"
    )
    with pytest.raises(subprocess.TimeoutExpired):
        run_bounded([sys.executable, "-S", "-c", code], input=b"", timeout=1.0)
    assert not half.exists()
