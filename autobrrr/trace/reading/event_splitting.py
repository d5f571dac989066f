"""From blocks of JSON to batches of decoded events, holding no more than a few blocks at a time.

The list of events is cut at what looks like a boundary, and the decoder proves each cut: a
piece that parses as a list was cut right. What stands around the list is kept for the metadata.
A stretch that the decoder refuses goes a slow way, event by event, and only it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator, Iterable, Iterator

import msgspec
from msgspec import Struct

from autobrrr.errors import UsageError
from autobrrr.trace.reading.other_formats import what_it_is
from autobrrr.trace.reading.plain_events import NOT_UTF8, Tally, one_by_one
from autobrrr.trace.reading.trace_events import EVENTS

_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?\s*")
_START = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
_LONGEST_START = 1 << 10  # bytes of a start that may stand across two blocks
_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_LOOKED_THROUGH = 1 << 14  # bytes from the end, for a boundary: events are much smaller
_TRIES = 3  # boundaries that may lie inside an event before the slow way is taken
_PHASE = re.compile(rb'"ph"\s*:')
_BETWEEN = b" \t\r\n,"
_AROUND_LIMIT_BYTES = 64 << 20
_EVENT_LIMIT_BYTES = 32 << 20
_MAGIC_BYTES = 1 << 12
_HINT = "analyze reads what torch.profiler's export_chrome_trace writes, .json or .json.gz"


class Batch(Struct, frozen=True, kw_only=True):
    """Events that stood together; `text` begins with theirs, at `offset` in the document."""

    events: list[object]
    text: bytes
    offset: int


class Splitter:
    """Cuts one document. After the iteration, the fields say how it went.

    `around` is the text around the list of events, which stands in it as `[]`; `passed_over` counts
    entries that are no events or no JSON, `mended` places that were read although they are no proper
    JSON; `damage` says where and why reading had to end early.

    Args:
        name: Of the document, for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.around = b""
        self.passed_over = Tally()
        self.mended = Tally()
        self.damage: str | None = None
        self._offset = 0  # of the first undecoded byte in the document

    def batches(self, blocks: Iterable[bytes]) -> Iterator[Batch]:
        """The events of the document.

        Raises:
            UsageError: this is no trace.
        """
        source = filter(None, blocks)
        rest = yield from self._list(self._find_list(source), source)
        if rest is not None:
            self._after_list(rest, source)

    def _find_list(self, source: Iterator[bytes]) -> bytes:
        """Reads on to the list of events; returns what was read of it."""
        text, searched, begin = bytearray(), 0, 0
        for block in source:
            text += block
            head = _HEAD.match(text)
            begin = head.end() if head is not None else 0
            if text.startswith(b"[", begin):
                self._offset = begin + 1
                return bytes(text[begin + 1 :])
            if begin < len(text) and not text.startswith(b"{", begin):
                break
            if (found := _START.search(text, searched)) is not None:
                self.around = bytes(text[begin : found.end()]) + b"]"
                self._offset = found.end()
                return bytes(text[found.end() :])
            searched = max(0, len(text) - _LONGEST_START)
            if len(text) > _AROUND_LIMIT_BYTES:
                break
        head_bytes = bytes(text[begin : begin + _MAGIC_BYTES])
        what = what_it_is(head_bytes, self.name, bytes_seen=len(text))
        raise UsageError(f"{self.name} is not a trace: {what.text}", what.hint or _HINT)

    def _list(self, text: bytes, source: Iterator[bytes]) -> Generator[Batch, None, bytes | None]:
        """The events of the list; returns what follows it, None where the document ends before."""
        enough = 0  # bytes below which no further try is worth it: doubles while one entry does not end
        while True:
            entry = text.lstrip(_BETWEEN)
            self._offset += len(text) - len(entry)
            if entry.startswith(b"]"):
                self._offset += 1
                return entry[1:]
            block = next(source, b"")
            if not block and not entry:
                self.damage = f"it ends at byte {self._offset}, before its list of events does"
                return None
            text = entry + block
            if block and len(text) < enough:
                continue
            final = not block or len(text) > _EVENT_LIMIT_BYTES
            events, used = self._proven(text) or one_by_one(
                text, self._offset, self.passed_over, self.mended, final=final
            )
            if events:
                yield Batch(events=events, text=text, offset=self._offset)
            enough = 0 if used else 2 * len(text)
            self._offset += used
            text = text[used:]

    def _proven(self, text: bytes) -> tuple[list[object], int] | None:
        """The events up to one of the last boundaries, and their bytes; None where none proves right."""
        found = _BOUNDARY.finditer(text, max(0, len(text) - _LOOKED_THROUGH))
        for cut in reversed([each.start() + 1 for each in found][-_TRIES:]):
            piece = memoryview(text)[:cut]
            try:
                events = EVENTS.decode(b"".join((b"[", piece, b"]")))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            try:  # the decoder does not look at what it skips
                codecs.utf_8_decode(piece)
            except UnicodeDecodeError as error:
                self.mended.add(self._offset + error.start, NOT_UTF8)
            return events, cut
        return None

    def _after_list(self, rest: bytes, source: Iterator[bytes]) -> None:
        """Reads on to the end of the document."""
        tail = bytearray(rest)
        while len(tail) <= _AROUND_LIMIT_BYTES and (block := next(source, b"")):
            tail += block
        if not self.around:
            if tail.strip():
                self.passed_over.add(self._offset, f"{len(tail)} bytes behind the end of the list")
            return
        if _PHASE.search(tail):
            self.passed_over.add(self._offset, "events behind the end of their list")
        self.around += tail
