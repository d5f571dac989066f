"""Session logs and recordings, read line by line into the view that they make.

A line is `{"at": seconds, "kind": ..., "body": ...}`. What can't be read is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from autobrrr.errors import UsageError
from autobrrr.records import Diagnosis, Reverted, Verdict, verdict_line
from autobrrr.records.events import Told, from_entry
from autobrrr.records.log_lines import NO_MOMENT, LogLines, lines_of
from autobrrr.records.wire_answers import ActivityLine, Details, SessionEnding, StepHistory
from autobrrr_tui.view_reducer import heard, left_on, retuned, said, take
from autobrrr_tui.view_state import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One whole line."""

    at_s: float
    kind: str
    body: dict[str, object]
    line: int = 0  # of the file, from 1


class ViewReader:
    """Grows a view from entries."""

    def __init__(self) -> None:
        self.view = View()
        self.ended = ""
        self._attached_s: float | None = None  # by the clock of the log

    def feed(self, lines: Iterable[str | bytes]) -> None:
        for entry in entries(lines):
            self.take(entry)

    def take(self, entry: Entry) -> bool:
        """One entry; False where this version can't read it, and leaves it out."""
        try:
            self._take(entry)
        except msgspec.ValidationError:
            return False
        return True

    def _take(self, entry: Entry) -> None:
        found = from_entry(entry.kind, entry.body)
        if isinstance(found, Diagnosis) and found.t_ns is not None:
            self._attached_s = entry.at_s - found.t_ns / 1e9
        elif self._attached_s is None:
            self._attached_s = entry.at_s
        t_ns = int((entry.at_s - self._attached_s) * 1e9)
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


def entries(lines: Iterable[str | bytes]) -> Iterator[Entry]:
    """Whole lines as entries; those that are cut or something else are left out."""
    yield from _entries(LogLines(lines))


def _entries(lines: LogLines) -> Iterator[Entry]:
    for line in lines:
        if line.at_s is None:
            lines.pass_over(line.number, NO_MOMENT)
        else:
            yield Entry(at_s=line.at_s, kind=line.kind, body=line.body, line=line.number)


def read(path: Path) -> list[Entry]:
    """All entries of a session log or a recording (`.gz`), and one more that says what can't be read.

    Raises:
        UsageError: it can't be read, or holds no session.
    """
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error}", "autobrrr report SESSION") from None
    lines, sound, trial = LogLines(lines_of(path)), [], ViewReader()
    for entry in _entries(lines):
        if trial.take(entry):
            sound.append(entry)
        else:
            lines.pass_over(entry.line, f"a {entry.kind} of another version")
    if not any(entry.kind in ("attached", "snapshot") for entry in sound):
        said = f"; {lines.said}" if lines.said else ""
        raise UsageError(
            f"{path} holds no session{said}", "session logs lie in the state folder, sessions/*.jsonl"
        )
    if lines.said is not None:
        sound.append(Entry(at_s=sound[-1].at_s, kind="note", body={"text": lines.said}))
    return sound
