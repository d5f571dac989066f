"""A session of the past as a source, read from its log: as it was at its end, or played as it went.

What can't be read is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from autobrrr.errors import UsageError
from autobrrr.records import Diagnosis, Record, Reverted, Verdict, verdict_line
from autobrrr.records.events import Told
from autobrrr.records.wire_answers import ActivityLine, SessionEnding, StepHistory
from autobrrr.report.log_lines import LogEntry, LogLines, open_log
from autobrrr_tui.view_state import (
    Publish,
    ScreenStanding,
    Tell,
    View,
    Work,
    heard,
    left_on,
    retuned,
    said,
    take,
)

RECORDING = Path(__file__).parents[1] / "recordings" / "demo.jsonl.gz"  # that ships: of a real job
LONGEST_S = 5.0  # a gap in a recording is not waited for longer than this
OFTEN_S = 0.1  # entries that lie closer together come as one view
Wait = Callable[[float], bool]  # waits so long; true when it is over


class ReplaySource:
    """The lines of one session, each with its moment.

    Args:
        speed: How many times as fast it is played; None shows its end at once.
        wait: Waits between entries; a test hands one in that does not.
    """

    def __init__(
        self, entries: Sequence[LogEntry], *, title: str, speed: float | None = None, wait: Wait | None = None
    ) -> None:
        self.title = title
        self._entries, self._speed = entries, speed
        self._left = threading.Event()
        self._wait = wait or self._left.wait

    def start(self, publish: Publish) -> None:
        threading.Thread(target=self._play, args=(publish,), name="replay", daemon=True).start()

    def request(self, work: Work, tell: Tell, *, at_once: bool = False) -> None:
        tell("this is a recorded session: there is no job")

    def close(self) -> None:
        self._left.set()

    def _play(self, publish: Publish) -> None:
        reader = ViewReader()
        shown_s: float | None = None
        for at_s, _, found in self._entries:
            gap_s = 0.0 if shown_s is None else at_s - shown_s
            shown_s = at_s if shown_s is None else shown_s
            if self._speed is not None and gap_s >= OFTEN_S:
                publish(replace(self._seen(reader.view, "playing"), playing=True))
                shown_s = at_s
                if self._wait(min(LONGEST_S, gap_s) / self._speed):
                    return
            reader.take(at_s, found)
        publish(self._seen(reader.view, reader.ended or "the recording ends here"))

    def _seen(self, view: View, what: str) -> View:
        return replace(view, standing=ScreenStanding.RECORDED, why=f"{self.title}, {what}")


class ViewReader:
    """Grows a view from the lines of a log."""

    def __init__(self) -> None:
        self.view = View()
        self.ended = ""
        self._attached_s: float | None = None  # by the clock of the log

    def feed(self, lines: Iterable[str | bytes]) -> None:
        for line in LogLines(lines):
            self.take(line.at_s, line.found)

    def take(self, at_s: float, found: Record | None) -> None:
        if isinstance(found, Diagnosis) and found.t_ns is not None:
            self._attached_s = at_s - found.t_ns / 1e9
        elif self._attached_s is None:
            self._attached_s = at_s
        t_ns = int((at_s - self._attached_s) * 1e9)
        if isinstance(found, ActivityLine):
            self.view = heard(self.view, found, t_ns)
        elif type(found) is Verdict:  # a snapshot is one too
            self.view = said(self.view, verdict_line(found), t_ns)
        elif isinstance(found, StepHistory):
            self.view = replace(self.view, details=msgspec.structs.replace(self.view.details, history=found))
        elif isinstance(found, Reverted) and self.view.tuned is not None:
            self.view = retuned(self.view, self.view.tuned.without(found))
        elif isinstance(found, SessionEnding):
            self.ended = found.why
            self.view = left_on(said(self.view, f"ended: {self.ended}", t_ns))
        elif isinstance(found, Told):
            self.view = take(self.view, found)


def read(path: Path) -> list[LogEntry]:
    """All of a session log or a recording (`.gz`), and a note that says what can't be read.

    Raises:
        UsageError: it can't be read, or holds no session.
    """
    lines = open_log(path)
    found = list(lines)
    if not any(line.kind in ("attached", "snapshot") for line in found):
        said = f"; {lines.said}" if lines.said else ""
        raise UsageError(
            f"{path} holds no session{said}", "session logs lie in the state folder, sessions/*.jsonl"
        )
    note = [] if lines.said is None else [LogEntry(found[-1].at_s, "note", ActivityLine(text=lines.said))]
    return [*found, *note]
