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
from autobrrr.trace.reading.plain_events import NOT_UTF8, ListPosition, list_ends, walk
from autobrrr.trace.reading.tally import Tally
from autobrrr.trace.reading.trace_events import EVENTS

_START = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
_LONGEST_START = 1 << 10  # bytes of a start that may stand across two blocks
_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_PHASE = re.compile(rb'"ph"\s*:')
_GAP = re.compile(rb"[ \t\r\n,]*")
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_AROUND_LIMIT_BYTES = 64 << 20
_SPACE_LIMIT_BYTES = 256 << 20
_EVENT_LIMIT_BYTES = 32 << 20
_TRIES = 6
_MAGIC_BYTES = 1 << 12
_BLANK = f"there is nothing but white space for {_SPACE_LIMIT_BYTES >> 20} MB"
_TRUNCATED = "Input data was truncated"
_HINT = "analyze reads what torch.profiler's export_chrome_trace writes, .json or .json.gz"


class Batch(Struct, frozen=True, kw_only=True):
    """Events that stood together; only complete ones have fields.

    `piece` is their JSON text, a list, and `offset` is where it begins in the document; those read one by
    one have `places` in its stead. `piece` is valid only until the next batch is asked for.
    """

    events: list[object]
    piece: memoryview = memoryview(b"")
    offset: int = 0
    places: list[int] = []

    def place(self, index: int) -> int:
        """The byte of the document at which an event begins."""
        if self.places:
            return self.places[index]
        anew = ListPosition(bare=True, passed_over=Tally(), mended=Tally())
        return walk(bytes(self.piece[1:]), self.offset + 1, anew, final=True).places[index]


class _Blocks:
    """Blocks one at a time, and whether there are more."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self.ended = False

    def next(self) -> bytes:
        """The next block that is not empty; b"" at the end."""
        for block in self._blocks:
            if block:
                return block
        self.ended = True
        return b""


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
        self._gap_bytes = 0  # without an entry, just before
        self._place = self._new_place(bare=False)
        self._enough = 0  # bytes below which no further try is worth it: doubles while one entry does not end

    def batches(self, blocks: Iterable[bytes]) -> Iterator[Batch]:
        """The events of the document.

        Raises:
            UsageError: this is no trace.
        """
        source = _Blocks(blocks)
        rest = yield from self._list(self._find_list(source), source)
        if rest is not None:
            self._after_list(rest, source)

    def _find_list(self, source: _Blocks) -> bytes:
        """Reads on to the list of events; returns what was read of it."""
        text, searched = bytearray(), 0
        while block := source.next():
            if not text:  # white space is not kept
                stripped = (block if self._offset else block.removeprefix(_BOM)).lstrip(_SPACE)
                self._offset += len(block) - len(stripped)
                if self._offset > _SPACE_LIMIT_BYTES:
                    raise UsageError(f"{self.name} is not a trace: {_BLANK}", _HINT)
                if stripped[:1] == b"[":
                    self._place = self._new_place(bare=True)
                    self._offset += 1
                    return stripped[1:]
                block = stripped
            text += block
            if text and not text.startswith(b"{"):
                break
            if (found := _START.search(text, searched)) is not None:
                self.around += bytes(text[: found.end() - 1]) + b"[]"
                self._offset += found.end()
                return bytes(text[found.end() :])
            searched = max(0, len(text) - _LONGEST_START)
            if len(text) > _AROUND_LIMIT_BYTES:
                break
        hint = "" if text else _HINT
        what = what_it_is(bytes(text[:_MAGIC_BYTES]), self.name, bytes_seen=len(text))
        raise UsageError(f"{self.name} is not a trace: {what.text}", what.hint or hint or _HINT)

    def _new_place(self, *, bare: bool) -> ListPosition:
        return ListPosition(bare=bare, passed_over=self.passed_over, mended=self.mended)

    def _list(self, rest: bytes, source: _Blocks) -> Generator[Batch, None, bytes | None]:
        """The events of one list; returns what follows it, None where the document ends before."""
        place = self._place
        while True:
            if not place.lost:
                rest = self._skip_gap(rest)
                if self._gap_bytes > _SPACE_LIMIT_BYTES:
                    self.damage = f"from byte {self._offset - self._gap_bytes} on, {_BLANK}"
                    return None
                if rest.startswith(b"]") and _ends(rest, place, source):
                    self._offset += 1
                    return rest[1:]
            if source.ended and not rest:
                lost = f"and from byte {place.lost_at} on nothing of it could be read"
                self.damage = f"it ends at byte {self._offset}, " + (
                    lost if place.lost else "before its list of events does"
                )
                return None
            too_large = len(rest) > _EVENT_LIMIT_BYTES
            # "[" before, and "]" in place of what follows a boundary: pieces are decoded where they stand.
            buffer = bytearray(b"[")
            buffer += rest
            buffer += source.next() if rest or place.lost else self._skip_gap(source.next())
            end, used = len(buffer), 0
            if source.ended or too_large or len(buffer) >= self._enough:
                used = yield from self._take(buffer, ended=source.ended, too_large=too_large)
            rest = bytes(memoryview(buffer)[used + 1 : end])
            self._offset += used
            if too_large and place.lost:
                self.damage = f"what begins at byte {place.lost_at} is too large for an event"
                return None

    def _skip_gap(self, text: bytes) -> bytes:
        found = _GAP.match(text)
        end = found.end() if found is not None else 0
        self._gap_bytes = end if end < len(text) else self._gap_bytes + end
        self._offset += end
        return text[end:]

    def _take(self, buffer: bytearray, *, ended: bool, too_large: bool) -> Generator[Batch, None, int]:
        """The events at the start of the buffer; returns how many bytes behind its first are done with."""
        place = self._place
        if ended:
            buffer += b"]"
        if not place.lost and buffer[1:2] != b"]":
            for cut in (len(buffer) - 1,) if ended else _cuts(buffer):
                kept, buffer[cut] = buffer[cut], 0x5D
                try:
                    batch, upto = self._proven(buffer, cut + 1)
                    if batch is not None:
                        yield batch
                        return upto - 2
                finally:
                    buffer[cut] = kept
                if upto:  # broken, and would be with any other cut
                    break
        end = len(buffer) - 1 if ended else len(buffer)
        text = bytes(memoryview(buffer)[1:end])
        walked = walk(text, self._offset, place, final=ended or too_large)
        self._enough = 0 if walked.used else 2 * len(buffer)
        if walked.events:
            yield Batch(events=walked.events, places=walked.places)
        return walked.used

    def _proven(self, buffer: bytearray, size: int) -> tuple[Batch | None, int]:
        """The events in the first `size` bytes and how many bytes they took, the bracket included.

        Without events: 0 where another cut may prove right, else the size.
        """
        piece = memoryview(buffer)[:size]
        try:
            try:
                return self._batch(piece), size
            except msgspec.ValidationError:
                return None, size
            except msgspec.DecodeError as error:
                trailing = _TRAILING.search(str(error))
                if trailing is None:
                    return None, 0 if str(error) == _TRUNCATED else size
                upto = buffer.rindex(b"]", 0, int(trailing.group(1)) - 1) + 1
                return self._batch(piece[:upto]), upto
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None, size

    def _batch(self, piece: memoryview) -> Batch:
        offset = self._offset - 1
        found = EVENTS.decode(piece)
        try:  # the decoder does not look at what it skips
            codecs.utf_8_decode(piece)
        except UnicodeDecodeError as error:
            self.mended.add(offset + error.start, NOT_UTF8)
        return Batch(events=found, piece=piece, offset=offset)

    def _after_list(self, rest: bytes, source: _Blocks) -> None:
        """Reads on to the end of the document."""
        tail = bytearray(rest)
        while len(tail) <= _AROUND_LIMIT_BYTES and (block := source.next()):
            tail += block
        if more := sum(map(len, iter(source.next, b""))):
            self.mended.add(self._offset + len(tail), f"the {more} bytes from there on were not read")
        self._mind_tail(tail)
        self.around += tail

    def _mind_tail(self, tail: bytearray) -> None:
        if self._place.bare:
            if tail.strip(_SPACE):
                self.passed_over.add(self._offset, f"{len(tail)} bytes behind the end of the list")
            return
        if _PHASE.search(tail):
            self.passed_over.add(self._offset, "events behind the end of their list")


def _ends(rest: bytes, place: ListPosition, source: _Blocks) -> bool:
    text = rest.decode("utf-8", "replace")
    return bool(list_ends(text, 0, bare=place.bare, final=source.ended))


def _cuts(buffer: bytearray) -> Iterator[int]:
    """Where the buffer may be cut, the last place first; only the first few are worth a try."""
    tried = 0
    end = len(buffer)
    width = 1 << 12
    while end > 0 and tried < _TRIES:
        begin = max(0, end - width)
        places = [found.start() + 1 for found in _BOUNDARY.finditer(buffer, begin, end)]
        for place in reversed(places):
            yield place
            tried += 1
            if tried == _TRIES:
                return
        end = begin + 256 if begin and places == [] else begin
        width *= 8
