"""The lines of a session log or a recording: what is whole comes out, what is not is counted and said.

A line is `{"at": seconds, "kind": ..., "body": ...}`. A crash cuts the last one. Every text comes out
readable.
"""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autobrrr.folders import open_plain
from autobrrr.readable import fields, readable_lines

MOST_LINE_BYTES, MOST_LINES = 1 << 24, 1_000_000
NO_MOMENT = "a moment that no clock shows"
FAR_S = 1e11  # no clock has come so far; neither endless nor no number


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One whole line; `number` counts from 1, `at_s` is None where no clock shows such a moment."""

    number: int
    at_s: float | None
    kind: str
    body: dict[str, object]


class LogLines:
    """Iterates over the whole lines. `unread` counts the others, also those that a caller can't use.

    Args:
        lines: Of the file; an error in between ends them and is said.
    """

    def __init__(self, lines: Iterable[str | bytes]) -> None:
        self._lines = lines
        self.unread = 0
        self._first = ""
        self._ended = ""

    def __iter__(self) -> Iterator[LogLine]:
        number = 0
        try:
            for number, line in enumerate(self._lines, 1):
                found = self._whole(number, line)
                if found is not None:
                    yield found
        except (OSError, EOFError, zlib.error) as error:
            self._ended = f"nothing behind line {number} can be read: {error}"

    def pass_over(self, number: int, what: str) -> None:
        """Count a line that can't be used."""
        self.unread += 1
        self._first = self._first or f"line {number}: {what}"

    @property
    def said(self) -> str | None:
        """One sentence on what was not read; None where all was."""
        counted = "1 line of the log" if self.unread == 1 else f"{self.unread} lines of the log"
        first = f"{counted} can't be read, {'' if self.unread == 1 else 'the first is '}{self._first}"
        return "; ".join(each for each in (first if self.unread else "", self._ended) if each) or None

    def _whole(self, number: int, line: str | bytes) -> LogLine | None:
        if not (text := line.strip()):
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            self.pass_over(number, "no JSON, or cut")
            return None
        entry = found if isinstance(found, dict) else {}
        at_s, kind, body = entry.get("at"), entry.get("kind"), entry.get("body")
        if not isinstance(kind, str) or not isinstance(body, dict):
            self.pass_over(number, "no entry of a session")
            return None
        clock = isinstance(at_s, int | float) and not isinstance(at_s, bool) and abs(at_s) < FAR_S
        return LogLine(
            number=number,
            at_s=float(at_s) if clock else None,  # type: ignore[arg-type]
            kind=kind,
            body=fields(body, readable_lines),
        )


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a plain file, packed or not; one that is too long comes in pieces, which are none.

    Raises:
        OSError, EOFError, zlib.error: it can't be read, or no further.
    """
    with open(open_plain(path), "rb") as file:
        lines = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        yield from itertools.islice(iter(lambda: lines.readline(MOST_LINE_BYTES), b""), MOST_LINES)
