"""Session logs and recordings, read line by line into the view that they make.

What can't be read is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from autobrrr.errors import UsageError
from autobrrr.records import Diagnosis, Record, Reverted, Verdict, verdict_line
from autobrrr.records.events import Told, from_entry
from autobrrr.records.log_lines import NO_MOMENT, LogLine, LogLines, lines_of
from autobrrr.records.wire_answers import ActivityLine, Details, SessionEnding, StepHistory
from autobrrr_tui.view_reducer import heard, left_on, retuned, said, take
from autobrrr_tui.view_state import View


class ViewReader:
    """Grows a view from the lines of a log."""

    def __init__(self) -> None:
        self.view = View()
        self.ended = ""
        self._attached_s: float | None = None  # by the clock of the log

    def feed(self, lines: Iterable[str | bytes]) -> None:
        for line in timed(LogLines(lines)):
            self.take(line)

    def take(self, line: LogLine) -> bool:
        """One line with its moment; False where this version can't read it, and leaves it out."""
        try:
            found = from_entry(line.kind, line.body)
        except msgspec.ValidationError:
            return False
        if found is not None:
            self._take(line.at_s or 0.0, found)
        return True

    def _take(self, at_s: float, found: Record) -> None:
        if isinstance(found, Diagnosis) and found.t_ns is not None:
            self._attached_s = at_s - found.t_ns / 1e9
        elif self._attached_s is None:
            self._attached_s = at_s
        t_ns = int((at_s - self._attached_s) * 1e9)
        if isinstance(found, ActivityLine):
            self.view = heard(self.view, found, t_ns)
        elif isinstance(found, Verdict):
            self.view = said(self.view, verdict_line(found), t_ns)
        elif isinstance(found, StepHistory):
            known = self.view.details or Details(history=found)
            self.view = replace(self.view, details=msgspec.structs.replace(known, history=found))
        elif isinstance(found, Reverted) and self.view.tuned is not None:
            self.view = retuned(self.view, self.view.tuned.without(found))
        elif isinstance(found, SessionEnding):
            self.ended = found.why
            self.view = left_on(said(self.view, f"ended: {self.ended}", t_ns))
        elif isinstance(found, Told):
            self.view = take(self.view, found)


def timed(lines: LogLines) -> Iterator[LogLine]:
    """The lines that have a moment; the others are counted."""
    for line in lines:
        if line.at_s is None:
            lines.pass_over(line.number, NO_MOMENT)
        else:
            yield line


def read(path: Path) -> list[LogLine]:
    """All lines of a session log or a recording (`.gz`), and one more that says what can't be read.

    Raises:
        UsageError: it can't be read, or holds no session.
    """
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error}", "autobrrr report SESSION") from None
    lines, sound, trial = LogLines(lines_of(path)), [], ViewReader()
    for line in timed(lines):
        if trial.take(line):
            sound.append(line)
        else:
            lines.pass_over(line.number, f"a {line.kind} of another version")
    if not any(line.kind in ("attached", "snapshot") for line in sound):
        said = f"; {lines.said}" if lines.said else ""
        raise UsageError(
            f"{path} holds no session{said}", "session logs lie in the state folder, sessions/*.jsonl"
        )
    if lines.said is not None:
        sound.append(LogLine(number=0, at_s=sound[-1].at_s, kind="note", body={"text": lines.said}))
    return sound
