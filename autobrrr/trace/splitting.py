"""From blocks of JSON to batches of decoded events, holding no more than a few blocks at a time.

The list of events is cut at what looks like a boundary, and the decoder proves each cut: a
piece that parses as a list was cut right. What stands before and after the list is kept for
the metadata. Anything irregular goes an exact and slow way, event by event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from autobrrr.errors import UsageError
from autobrrr.trace import events
from autobrrr.trace.events import Event, ExactEvent

_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_HEAD_LIMIT_BYTES = 64 << 20
_TAIL_LIMIT_BYTES = 16 << 20
_TRIES = 6
_STUCK_BYTES = 4 << 20  # no boundary proves right in so much: event by event
_EVENT_LIMIT_BYTES = 32 << 20
_HINT = "analyze reads what torch.profiler's export_chrome_trace writes, .json or .json.gz"


class Batch(Struct, frozen=True, kw_only=True):
    """Events that stood together; complete ones are of `kind`, all others have no fields.

    `piece` is their JSON text, a list, for decoding once more; empty where they were read one by one.
    It is valid only until the next batch is asked for.
    """

    kind: type[Event] | type[ExactEvent]
    events: list[object]
    piece: memoryview


class Splitter:
    """Cuts one document. After the iteration, the fields say how it went.

    `head` and `tail` are the text around the list of events; `odd_values` counts list entries
    that are no events; `damage` says where and why reading had to end early.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.head = b""
        self.tail = b""
        self.odd_values = 0
        self.damage: str | None = None
        self.exact = False  # decode the digits of times from now on
        self._offset = 0  # of the first undecoded byte in the document
        self._ended = False
        self._stuck_bytes = _STUCK_BYTES  # doubles while one event does not end, so that it is tried seldom

    def batches(self, blocks: Iterable[bytes]) -> Iterator[Batch]:
        """The events of the document.

        Raises:
            UsageError: this is no trace.
        """
        source = iter(blocks)
        rest = self._find_list(source)
        while not self._ended:
            if len(rest) > _EVENT_LIMIT_BYTES:
                self.damage = f"what begins at byte {self._offset} is too large for an event"
                return
            rest = self._skip_comma(rest)
            if rest.startswith(b"]"):
                self._end(rest[1:])
                break
            block = next(source, None)
            if block is None:
                yield from self._last(rest)
                break
            # "[" before, and "]" in place of what follows a boundary: pieces are decoded where they stand.
            buffer = bytearray(b"[")
            buffer += rest
            buffer += block
            batch, used = self._first_that_proves(buffer)
            if batch is not None:
                yield batch
                del batch
            rest = bytes(memoryview(buffer)[used:])
            self._offset += used - 1
        for block in source:
            self._end(block)

    def _find_list(self, source: Iterator[bytes]) -> bytes:
        """Reads on to the list of events; returns what was read of it."""
        text = b""
        for block in source:
            text += block
            stripped = text.removeprefix(_BOM).lstrip(_SPACE)
            if not stripped:
                continue
            if stripped[:1] == b"[":
                self._offset = len(text) - len(stripped) + 1
                return stripped[1:]
            if stripped[:1] != b"{":
                raise UsageError(f"{self.name} is not a trace: it is no JSON", _HINT)
            found = _START.search(text)
            if found is not None:
                self.head = text[: found.end() - 1].removeprefix(_BOM)
                self._offset = found.end()
                return text[found.end() :]
            if len(text) > _HEAD_LIMIT_BYTES:
                break
        what = "it has no traceEvents" if text.strip(_SPACE) else "it is empty"
        raise UsageError(f"{self.name} is not a trace: {what}", _HINT)

    def _skip_comma(self, text: bytes) -> bytes:
        rest = text.lstrip(_SPACE)
        if rest.startswith(b","):
            rest = rest[1:].lstrip(_SPACE)
        self._offset += len(text) - len(rest)
        return rest

    def _first_that_proves(self, buffer: bytearray) -> tuple[Batch | None, int]:
        """The events up to the last boundary that is one, and where the text after them begins."""
        for cut in _cuts(buffer):
            kept, buffer[cut] = buffer[cut], 0x5D
            batch, used = self._decode(buffer, cut + 1)
            if batch is not None:
                return batch, used
            buffer[cut] = kept
        if len(buffer) > self._stuck_bytes:
            batch, used = self._one_by_one(bytes(buffer[1:]))
            self._stuck_bytes = _STUCK_BYTES if batch is not None else 2 * len(buffer)
            return batch, used + 1
        return None, 1

    def _decode(self, buffer: bytearray, size: int) -> tuple[Batch | None, int]:
        """The events in the first `size` bytes, and how many bytes they took; None where they are no list."""
        piece = memoryview(buffer)[:size]
        try:
            return self._batch(piece), size
        except msgspec.ValidationError:
            pass
        except msgspec.DecodeError as error:
            after = _TRAILING.search(str(error))
            return (None, 0) if after is None else self._closed(buffer, int(after.group(1)) - 1)
        except (UnicodeDecodeError, RecursionError):
            pass
        batch, used = self._one_by_one(bytes(piece[1:-1]))
        return batch, used + 1

    def _closed(self, buffer: bytearray, size: int) -> tuple[Batch | None, int]:
        """The list ends in the first `size` bytes; what follows is the tail."""
        try:
            batch = self._batch(memoryview(buffer)[:size])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            one_by_one, _ = self._one_by_one(bytes(buffer[1 : size - 1]))
            if one_by_one is None:
                return None, 0
            batch = one_by_one
        self._end(bytes(memoryview(buffer)[size:]))
        return batch, size

    def _batch(self, piece: memoryview) -> Batch:
        if self.exact:
            return Batch(kind=ExactEvent, events=events.EXACT_EVENTS.decode(piece), piece=piece)
        return Batch(kind=Event, events=events.EVENTS.decode(piece), piece=piece)

    def _one_by_one(self, data: bytes) -> tuple[Batch | None, int]:
        """The complete events at the start of the text, of whatever types and encoding."""
        text = data.decode("utf-8", "surrogateescape")
        found: list[object] = []
        place = used = 0
        while place < len(text):
            while place < len(text) and text[place] in " \t\r\n,":
                place += 1
            if text[place : place + 1] == "]":
                used = place
                break
            try:
                event, place = events.loose_event(text, place)
            except ValueError:
                break
            used = place
            if event is None:
                self.odd_values += 1
            else:
                found.append(event)
        if not used:
            return None, 0
        taken = len(text[:used].encode("utf-8", "surrogateescape"))
        return Batch(kind=ExactEvent, events=found, piece=memoryview(b"")), taken

    def _last(self, rest: bytes) -> Iterator[Batch]:
        """What is left at the end of the document: events, the end of the list, the tail."""
        if rest.strip(_SPACE):
            buffer = bytearray(b"[") + rest + b" "  # the byte that a boundary would have
            batch, used = self._decode(buffer, len(buffer))
            if batch is None and not self._ended:
                batch, used = self._one_by_one(rest)
                used += 1
            elif batch is not None and not self._ended and batch.piece.nbytes:
                self._ended = True  # a bare list, and nothing after it
            if batch is not None:
                yield batch
            self._offset += max(used - 1, 0)
            if not self._ended:
                after = self._skip_comma(rest[max(used - 1, 0) :])
                if after.startswith(b"]"):
                    self._end(after[1:])
        if not self._ended:
            self.damage = f"it ends at byte {self._offset}, before its list of events does"

    def _end(self, rest: bytes) -> None:
        self._ended = True
        if len(self.tail) + len(rest) <= _TAIL_LIMIT_BYTES:
            self.tail += rest


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
