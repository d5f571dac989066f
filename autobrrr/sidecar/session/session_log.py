"""The session log: one file a session, one JSON object a line.

Writing never stops a session: a full disk loses lines and says how many. Reading takes what is
whole, so that a line cut by a crash or a full disk costs that line only. Beside results it holds a snapshot
at every change, and now and then, so that a session of the past can be opened and read as it was: some ten
megabytes a day at most.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from autobrrr import folders, paths
from autobrrr.readable import readable
from autobrrr.records import Diagnosis, Record
from autobrrr.sidecar.process.session_options import State
from autobrrr.sidecar.session.collected import Collected

TAIL_BYTES = 1 << 18
MOST_BYTES = 1 << 28  # of one session: weeks of it
SNAPSHOT_NS = 60_000_000_000
HISTORY_NS = 600_000_000_000  # as long as the history reaches back


class SessionLog:
    """Appends to one file; every line is `{"at": seconds, "kind": ..., "body": ...}`.

    Args:
        path: The file, made with the first line: an attach that was refused leaves none. Its folder is
            made too; one that can't be made loses all lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost_lines = 0
        self._torn = False
        self._written_bytes = 0
        self._opened = False
        self._fd: int | None = None
        self._state: State | None = None  # of the last snapshot
        self._snapshot_ns = self._history_ns = 0

    def _open(self) -> None:
        self._opened = True
        try:
            paths.make_closed(self.path.parent)
            self._fd = os.open(self.path, folders.APPENDING, 0o600)
        except OSError:
            self._fd = None

    def write(self, kind: str, body: Record | dict[str, object]) -> None:
        """Append one line, or count it as lost."""
        line = msgspec.json.encode({"at": round(time.time(), 3), "kind": kind, "body": body}) + b"\n"
        if not self._opened:
            self._open()
        if self._torn:
            line = b"\n" + line
        try:
            full = self._written_bytes + len(line) > MOST_BYTES
            written = os.write(self._fd, line) if self._fd is not None and not full else 0
        except OSError:
            written = 0
        self._written_bytes += written
        if written < len(line):
            self.lost_lines += 1
            self._torn = self._torn or written > 0
        else:
            self._torn = False

    def look(self, now_ns: int, state: State, snapshot: Callable[[], Diagnosis], findings: Collected) -> None:
        """Write what is due: a snapshot at every change and now and then, and the history."""
        if state is not self._state or now_ns - self._snapshot_ns >= SNAPSHOT_NS:
            self._state, self._snapshot_ns = state, now_ns
            self.write("snapshot", snapshot())
        if now_ns - self._history_ns >= HISTORY_NS:
            self._history_ns = now_ns
            self.write("history", findings.history.history(findings.window.step_ns))


def log_path(pid: int, state: Path, now_s: float) -> Path:
    """Where the log of a session that begins now lies."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
    return state / "sessions" / f"{stamp}-{pid}.jsonl"


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log, as they stand; none where it can't be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            found = [readable(line) for line in file.read().decode(errors="replace").split("\n") if line]
    except OSError:
        return []
    return found[len(found) - min(lines, len(found)) :]
