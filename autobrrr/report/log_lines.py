"""The lines of a session log or a recording: what is whole comes out, what is not is counted and said.

A line is `{"at": seconds, "kind": ..., "body": ...}`. A crash cuts the last one. Every text comes out
readable.
"""

from __future__ import annotations

import gzip
import itertools
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from autobrrr.errors import UsageError
from autobrrr.folders import open_plain
from autobrrr.readable import fields, readable_lines
from autobrrr.records import Record
from autobrrr.records.events import from_entry

MOST_LINE_BYTES, MOST_LINES = 1 << 24, 1_000_000
Moment = Annotated[float, msgspec.Meta(gt=-1e11, lt=1e11)]  # no clock has come so far


class _Line(msgspec.Struct):
    at: Moment
    kind: str
    body: dict[str, object]


class LogEntry(NamedTuple):
    """One line; `found` is the record it holds, None where none is read again."""

    at_s: float
    kind: str
    found: Record | None


class LogLines:
    """Iterates over the lines that this version can read; `said` tells of the others.

    Args:
        lines: Of the file; an error in between ends them and is said.
    """

    def __init__(self, lines: Iterable[str | bytes]) -> None:
        self._lines = lines
        self._unread = 0
        self._first = ""
        self._ended = ""

    def __iter__(self) -> Iterator[LogEntry]:
        number = 0
        try:
            for number, text in enumerate(self._lines, 1):
                if not text.strip():
                    continue
                try:
                    line = msgspec.json.decode(text, type=_Line)
                    found = from_entry(line.kind, fields(line.body, readable_lines))
                except (ValueError, RecursionError) as error:
                    self._unread += 1
                    self._first = self._first or f"line {number}: {error}"
                else:
                    yield LogEntry(line.at, line.kind, found)
        except (OSError, EOFError, zlib.error) as error:
            self._ended = f"nothing behind line {number} can be read: {error}"

    @property
    def said(self) -> str | None:
        """One sentence on what was not read; None where all was."""
        counted = "1 line of the log" if self._unread == 1 else f"{self._unread} lines of the log"
        first = f"{counted} can't be read, {'' if self._unread == 1 else 'the first is '}{self._first}"
        return "; ".join(each for each in (first if self._unread else "", self._ended) if each) or None


def open_log(path: Path) -> LogLines:
    """The lines of a session log or a recording (`.gz`). Raises UsageError where there is none."""
    try:
        os.close(open_plain(path))
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error}", "autobrrr report lists sessions") from None
    return LogLines(_lines_of(path))


def _lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a plain file, packed or not; one that is too long comes in pieces, which are none."""
    with open(open_plain(path), "rb") as file:
        lines = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        yield from itertools.islice(iter(lambda: lines.readline(MOST_LINE_BYTES), b""), MOST_LINES)
