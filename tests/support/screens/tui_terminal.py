"""A real pseudo-terminal with an emulated screen around a command of ours."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence

import pyte


class Terminal:
    """One command in a terminal; `until` reads what it draws."""

    def __init__(
        self,
        *words: str,
        env: Mapping[str, str],
        columns: int = 80,
        lines: int = 24,
        command: Sequence[str] | None = None,
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._fd, theirs = pty.openpty()
        self._size(columns, lines)
        self.process = subprocess.Popen(
            [*(command or (sys.executable, "-m", "autobrrr")), *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**env, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(theirs)

    @property
    def lines(self) -> list[str]:
        """What stands on the screen now."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        self._screen.resize(lines, columns)
        self._size(columns, lines)
        self.process.send_signal(signal.SIGWINCH)  # the kernel tells a controlling terminal's group only

    def until(self, right: Callable[[Terminal], bool], patience_s: float = 60.0, step_s: float = 0.2) -> None:
        """Read until the screen is right.

        Raises:
            AssertionError: it did not become so; shows the screen as it is.
        """
        end_s = time.monotonic() + patience_s
        while not right(self):
            assert time.monotonic() < end_s, self.text
            if not self._read(step_s) and self.process.poll() is not None:
                assert right(self), self.text
                return

    def code(self, patience_s: float = 30.0) -> int:
        """The exit code, once the command has ended."""
        end_s = time.monotonic() + patience_s
        while self.process.poll() is None and time.monotonic() < end_s:
            self._read(0.1)
        while self._read(0.1):
            pass
        return self.process.wait(1)

    def drain(self, for_s: float = 0.0) -> None:
        """Read for so long, and then what is left."""
        end_s = time.monotonic() + for_s
        while self._read(max(0.0, end_s - time.monotonic())) or time.monotonic() < end_s:
            pass

    def choose(self, begins: str, patience_s: float = 60.0) -> None:
        """Move the cursor until it stands on the row that begins so; a crowded machine draws it late."""
        end_s = time.monotonic() + patience_s
        while not any(line.startswith(">") and begins in line for line in self.lines):
            assert time.monotonic() < end_s, self.text
            lines = list(self.lines)
            cursor = next((at for at, line in enumerate(lines) if line.startswith(">")), 0)
            wanted = next(
                (at for at, line in enumerate(lines) if line.lstrip("> ").startswith(begins)), cursor
            )
            self.press("k" if wanted < cursor else "j")
            self.drain(0.3)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._fd)

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._fd], [], [], timeout_s)[0]:
            return False
        try:
            raw = os.read(self._fd, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self._stream.feed(raw)
        return bool(raw)

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
