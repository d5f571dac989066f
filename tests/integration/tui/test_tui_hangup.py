"""The screen leaves with its terminal, also where a hang-up is ignored (nohup, setsid)."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.integration

SCREEN = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from autobrrr_tui.app import show_top
show_top(lambda: [], lambda pid: None)
"""


def test_a_closed_terminal_ends_the_screen() -> None:
    ours, its = pty.openpty()
    screen = subprocess.Popen(
        [sys.executable, "-c", SCREEN],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(its)
    try:
        until = time.monotonic() + 30
        drawn = b""
        while b"\x1b[?1049h" not in drawn and time.monotonic() < until:  # the alternate screen
            drawn += os.read(ours, 65536)
        time.sleep(1.0)
        assert screen.poll() is None
        os.close(ours)
        assert screen.wait(20) is not None
    finally:
        if screen.poll() is None:
            screen.send_signal(signal.SIGKILL)
            screen.wait()
