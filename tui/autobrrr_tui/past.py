"""Session logs and recordings, read line by line into the view that they make.

A line is `{"at": seconds, "kind": ..., "body": ...}`. What can't be read is left out.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from autobrrr.answers import Activity, Details, RecipeNow, StepHistory, TuneFailed
from autobrrr.errors import UsageError
from autobrrr.records import Diagnosis, Record, Trial, TuneProgress, Tuning
from autobrrr_tui.book import heard, said, take
from autobrrr_tui.state import RankCell, View

KINDS: dict[str, type[Diagnosis | Details | Activity | TuneProgress | Trial | Tuning | TuneFailed]] = {
    "snapshot": Diagnosis,
    "details": Details,
    "progress": TuneProgress,
    "trial": Trial,
    "tuned": Tuning,
    "tune_failed": TuneFailed,
    "activity": Activity,
    "note": Activity,
}

FAR_S = 1e11  # no clock has come so far; neither endless nor no number


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One whole line."""

    at_s: float
    kind: str
    body: dict[str, object]


class Reader:
    """Grows a view from entries."""

    def __init__(self) -> None:
        self.view = View()
        self.ended = ""
        self._began_s: float | None = None

    def feed(self, lines: Iterable[str | bytes]) -> None:
        for entry in entries(lines):
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """One entry; what this version can't read is left out."""
        try:
            self._take(entry)
        except msgspec.ValidationError:
            return

    def _take(self, entry: Entry) -> None:
        if self._began_s is None:
            self._began_s = entry.at_s
        t_ns = int((entry.at_s - self._began_s) * 1e9)
        kind = KINDS.get(entry.kind)
        if kind is Activity:
            self.view = heard(self.view, msgspec.convert(entry.body, Activity).text, t_ns)
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
    for line in lines:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(found, dict):
            continue
        at_s, kind, body = found.get("at"), found.get("kind"), found.get("body")
        if not isinstance(at_s, int | float) or not abs(at_s) < FAR_S:
            continue
        if isinstance(kind, str) and isinstance(body, dict):
            yield Entry(at_s=float(at_s), kind=kind, body=body)


def read(path: Path) -> list[Entry]:
    """All entries of a session log or a recording (`.gz`).

    Raises:
        UsageError: it can't be read, or holds no session.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            found = list(entries(lines))
    except (OSError, EOFError) as error:
        raise UsageError(f"{path} can't be read: {error}", "autobrrr report SESSION") from None
    if not any(entry.kind in ("attached", "snapshot") for entry in found):
        raise UsageError(f"{path} holds no session", "session logs lie in the state folder, sessions/*.jsonl")
    return found
