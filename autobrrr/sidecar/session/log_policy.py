"""What of a session goes into its log besides results: a snapshot at every change, and now and then.

So a session of the past can be opened and read as it was. A day of it is some ten megabytes at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autobrrr.records import Diagnosis, Record
from autobrrr.sidecar.session.collected import Collected
from autobrrr.sidecar.session.session_states import State

SNAPSHOT_NS = 60_000_000_000
HISTORY_NS = 600_000_000_000  # as long as the history reaches back


class Journal(Protocol):
    """Where a session writes down what it found."""

    def write(self, kind: str, body: Record | dict[str, object]) -> None:
        """Append one entry."""


class Chronicle:
    """Writes when it is time; one a session."""

    def __init__(self, journal: Journal, now_ns: int) -> None:
        self._journal = journal
        self._state: State | None = None
        self._snapshot_ns = self._history_ns = now_ns

    def look(self, now_ns: int, state: State, snapshot: Callable[[], Diagnosis], findings: Collected) -> None:
        """Write what is due."""
        if state is not self._state or now_ns - self._snapshot_ns >= SNAPSHOT_NS:
            self._state, self._snapshot_ns = state, now_ns
            self._journal.write("snapshot", snapshot())
        if now_ns - self._history_ns >= HISTORY_NS:
            self._history_ns = now_ns
            self._write_history(findings)

    def close(self, snapshot: Callable[[], Diagnosis], findings: Collected) -> None:
        """The session is over: how it stood at the end."""
        self._write_history(findings)
        self._journal.write("snapshot", snapshot())

    def _write_history(self, findings: Collected) -> None:
        self._journal.write("history", findings.history.history(findings.window.step_ns))
