"""Session logs and recordings, read line by line into the view that they make.

A line is `{"at": seconds, "kind": ..., "body": ...}`. What can't be read is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from autobrrr.errors import UsageError
from autobrrr.records import Diagnosis, Record, Trial, TuneProgress, Tuning
from autobrrr.records.log_lines import LogLines, lines_of
from autobrrr.records.wire_answers import ActivityLine, Details, RecipeNow, StepHistory, TuneFailed
from autobrrr_tui.view_reducer import heard, said, take
from autobrrr_tui.view_state import RankCell, View

KINDS: dict[str, type[Diagnosis | Details | ActivityLine | TuneProgress | Trial | Tuning | TuneFailed]] = {
    "snapshot": Diagnosis,
    "details": Details,
    "progress": TuneProgress,
    "trial": Trial,
    "tuned": Tuning,
    "tune_failed": TuneFailed,
    "activity": ActivityLine,
    "note": ActivityLine,
}


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
        self._began_s: float | None = None

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
        if self._began_s is None:
            self._began_s = entry.at_s
        t_ns = int((entry.at_s - self._began_s) * 1e9)
        kind = KINDS.get(entry.kind)
        if kind is ActivityLine:
            self.view = heard(self.view, msgspec.convert(entry.body, ActivityLine), t_ns)
        elif kind is not None:
            self.view = take(self.view, msgspec.convert(entry.body, kind))
        elif entry.kind == "history":
            history = msgspec.convert(entry.body, StepHistory)
            known = self.view.details or Details(history=history)
            self.view = replace(self.view, details=msgspec.structs.replace(known, history=history))
        elif entry.kind == "recipe" and self.view.details is not None:
            recipe = msgspec.convert(entry.body, RecipeNow)
            self.view = replace(self.view, details=msgspec.structs.replace(self.view.details, recipe=recipe))
        elif entry.kind == "verdict":
            regime, sure = entry.body.get("regime"), entry.body.get("confidence")
            self.view = said(self.view, f"regime: {regime} ({sure}): {entry.body.get('reason')}", t_ns)
        elif entry.kind == "ranks":
            found = msgspec.convert(entry.body.get("ranks"), list[_Rank])
            cells = tuple(
                RankCell(rank=r.rank, pid=r.pid, step_ns=r.step_ns, regime=r.regime, slowest=r.slowest)
                for r in found
            )
            self.view = replace(self.view, ranks=cells)
        elif entry.kind == "ended":
            self.ended = str(entry.body.get("why", ""))
            self.view = said(self.view, f"ended: {self.ended}", t_ns)


class _Rank(Record, frozen=True, kw_only=True):
    rank: int
    pid: int
    step_ns: int | None = None
    regime: str | None = None
    slowest: bool = False


def entries(lines: Iterable[str | bytes]) -> Iterator[Entry]:
    """Whole lines as entries; those that are cut or something else are left out."""
    yield from _entries(LogLines(lines))


def _entries(lines: LogLines) -> Iterator[Entry]:
    for line in lines:
        if line.at_s is None:
            lines.pass_over(line.number, "a moment that no clock shows")
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
