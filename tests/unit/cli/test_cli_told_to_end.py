"""A command that is told to end leaves nobody waiting for it, and nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autobrrr import own_modules, told_to_end
from autobrrr.machine import procfs
from autobrrr.told_to_end import stopped_in_order


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_tuning_that_is_told_to_end_does_so_as_by_ctrl_c(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), stopped_in_order():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def _begun(tmp_path: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A doctor that has just started its child, and the child."""
    env = {**own_modules.environment(), "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    command = own_modules.command("autobrrr", "doctor")
    doctor = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, start_new_session=True
    )
    for _ in range(1000):
        for child in procfs.descendants(doctor.pid):
            if any("end_s" in word.raw or "while" in word.raw for word in procfs.cmdline(child)):
                return doctor, child
        time.sleep(0.005)
    pytest.skip("its child was not seen")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_doctor_that_is_told_to_end_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    doctor, child = _begun(tmp_path)
    try:
        time.sleep(0.05)
        if number is signal.SIGINT:
            os.killpg(doctor.pid, number)  # as a terminal does
        else:
            doctor.send_signal(number)
        _, said = doctor.communicate(timeout=20)
        assert b"Traceback" not in said
        seen = procfs.stat(child)
        assert seen is None or seen.state in "ZX"
        assert not list(tmp_path.glob("autobrrr-doctor-*"))
    finally:
        if procfs.stat(child) is not None:
            os.kill(child, signal.SIGKILL)


SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_ctrl_c_while_the_child_starts_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(told_to_end.subprocess, "Popen", Started)
    with pytest.raises(KeyboardInterrupt), told_to_end.deaf_child(SLEEP, subprocess.DEVNULL):
        pass
    assert started[0].returncode == -signal.SIGKILL
