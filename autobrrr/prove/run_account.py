"""The account that a run has written of itself, read as data of a stranger.

In: a file that grows. Out: its steps and notes. Lines that are not as they should be are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from autobrrr.folders import open_plain

MOST_BYTES = 256 << 20
MOST_NOTES = 1 << 20
STEP = b'{"step"'
Place = tuple[str, str, int, float | None]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]


class AccountedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One training step: see `StepAccount` in `agent/audit/work_audit.py`."""

    step: int
    backwards: Count
    optimizers: Count
    samples: Count | None
    tokens: Count | None
    evaluated: Count
    rows: list[str]
    loss: float | None
    flops: dict[str, Count] | None
    places: list[Place]
    gradient: float | None
    parameters: int
    moved: Annotated[float, msgspec.Meta(ge=0)] | None
    gradient_signs: list[float]  # projections: see agent/audit/tensor_digests.py
    moved_signs: list[float]
    updated: Count
    elements: Count
    precision: Literal["highest", "high", "medium"]


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    note: str
    what: object
    step: int


class _End(msgspec.Struct, frozen=True, kw_only=True):
    end: int
    evaluated: int


@dataclass(slots=True)
class RunAccount:
    """One run, as far as it has come.

    Attributes:
        notes: (kind, what, step), in order.
        ended: Whether the script came to its end by itself.
        processes: That have trained; this account is of the first.
    """

    file: Path
    steps: list[AccountedStep] = field(default_factory=list)
    notes: list[tuple[str, object, int]] = field(default_factory=list)
    ended: bool = False
    evaluated_last: int = 0
    processes: int = 0
    _own: Path = Path()
    _read: int = 0
    _rest: bytes = b""

    def look(self) -> None:
        """Read what has been added."""
        files = sorted(self.file.parent.glob(f"{self.file.name}-*"))
        if not files or self._read > MOST_BYTES:
            return
        if not self.steps:  # others may import torch before the one that trains
            self._own = next(filter(_has_steps, files), files[0])
            self._read, self._rest, self.notes, self.evaluated_last = 0, b"", [], 0
        self.processes = bool(self.steps) + sum(_has_steps(each) for each in files if each != self._own)
        data = _bytes_of(self._own, MOST_BYTES, self._read)
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            if line.startswith(STEP):
                self.steps.append(msgspec.json.decode(line, type=AccountedStep))
            elif line.startswith(b'{"note"'):
                note = msgspec.json.decode(line, type=_Note)
                self.notes.append((note.note, note.what, note.step))
            elif line.startswith(b'{"end"'):
                self.evaluated_last = msgspec.json.decode(line, type=_End).evaluated
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return

    def noted(self, kind: str, before_step: int | None = None) -> list[object]:
        """What was noted of a kind; of the first few steps only, where it says so."""
        return [
            what
            for name, what, step in self.notes
            if name == kind and (before_step is None or step < before_step)
        ]


def _has_steps(file: Path) -> bool:
    """Its first lines may be notes."""
    return any(line.startswith(STEP) for line in _bytes_of(file, MOST_NOTES).split(b"\n"))


def _bytes_of(file: Path, most_bytes: int, start: int = 0) -> bytes:
    """Nothing where the run has put something else there than a file."""
    try:
        with open(open_plain(file), "rb") as opened:
            opened.seek(start)
            return opened.read(most_bytes)
    except OSError:
        return b""
