"""From blocks of JSON to lists of decoded events, holding no more than a few blocks at a time.

The list of events is cut at what looks like a boundary, and the decoder proves each cut: a
piece that parses as a list was cut right. What stands around the list is kept for the metadata.
A stretch that the decoder refuses goes a slow way, event by event, by the plain JSON parser, and only it.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Generator, Iterable, Iterator

import msgspec

from autobrrr.errors import UsageError
from autobrrr.trace.reading.trace_events import EVENT, EVENTS

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
_NOT_UTF8 = "a byte that is no UTF-8"

_GAP = re.compile(r"[ \t\r\n,]*")
_OBJECT = re.compile(r'\{[ \t\r\n]*"')  # with a member: a parser's error costs a walk through all before it
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = json.JSONDecoder(strict=False, parse_float=str, parse_int=str, parse_constant=str)  # digits are kept


class Tally:
    """Counts places of a document and says the first; `at` is a byte of its (inflated) text."""

    def __init__(self) -> None:
        self.count = 0
        self.at: int | None = None
        self.first: str | None = None

    def add(self, at: int, what: str) -> None:
        if self.at is None or at < self.at:
            self.at, self.first = at, f"at byte {at}: {what}"
        self.count += 1


class Splitter:
    """Cuts one document. After the iteration, the fields say how it went.

    `offset` is that of the events last given out; `around` is the text around the list of events, which
    stands in it as `[]`; `unread` counts entries that are no events or no JSON, `mended` places that were
    read although they are no proper JSON; `damage` says where and why reading had to end early.

    Args:
        name: Of the document, for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.around = b""
        self.unread = Tally()
        self.mended = Tally()
        self.damage: str | None = None
        self.offset = 0  # of the first undecoded byte in the document

    def batches(self, blocks: Iterable[bytes]) -> Iterator[list[object]]:
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
                self.offset = begin + 1
                return bytes(text[begin + 1 :])
            if begin < len(text) and not text.startswith(b"{", begin):
                break
            if (found := _START.search(text, searched)) is not None:
                self.around = bytes(text[begin : found.end()]) + b"]"
                self.offset = found.end()
                return bytes(text[found.end() :])
            searched = max(0, len(text) - _LONGEST_START)
            if len(text) > _AROUND_LIMIT_BYTES:
                break
        raise _no_trace(self.name, bytes(text[begin : begin + _MAGIC_BYTES]), len(text))

    def _list(self, text: bytes, source: Iterator[bytes]) -> Generator[list[object], None, bytes | None]:
        """The events of the list; returns what follows it, None where the document ends before."""
        enough = 0  # bytes below which no further try is worth it: doubles while one entry does not end
        while True:
            entry = text.lstrip(_BETWEEN)
            self.offset += len(text) - len(entry)
            if entry.startswith(b"]"):
                self.offset += 1
                return entry[1:]
            block = next(source, b"")
            if not block and not entry:
                self.damage = f"it ends at byte {self.offset}, before its list of events does"
                return None
            text = entry + block
            if block and len(text) < enough:
                continue
            final = not block or len(text) > _EVENT_LIMIT_BYTES
            events, used = self._proven(text) or self._one_by_one(text, final=final)
            if events:
                yield events
            enough = 0 if used else 2 * len(text)
            self.offset += used
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
            try:  # the decoder does not look at what it skips, such as the key that another one has become
                codecs.utf_8_decode(piece)
            except UnicodeDecodeError as error:
                self.mended.add(self.offset + error.start, _NOT_UTF8)
            return events, cut
        return None

    def _after_list(self, rest: bytes, source: Iterator[bytes]) -> None:
        """Reads on to the end of the document."""
        tail = bytearray(rest)
        while len(tail) <= _AROUND_LIMIT_BYTES and (block := next(source, b"")):
            tail += block
        if not self.around:
            if tail.strip():
                self.unread.add(self.offset, f"{len(tail)} bytes behind the end of the list")
            return
        if _PHASE.search(tail):
            self.unread.add(self.offset, "events behind the end of their list")
        self.around += tail

    def _one_by_one(self, data: bytes, *, final: bool) -> tuple[list[object], int]:
        """The events of a stretch, and how many of its bytes are done with: up to the list's end, at most.

        An entry that is no event is passed over and counted. Behind text that is no JSON, reading goes on
        with the next object that looks like an event; what lies between is counted as one entry.

        Args:
            data: Text of the list, which begins with an entry.
            final: Nothing more comes, or is waited for: what is incomplete is broken.
        """
        text = data.decode("latin-1")  # a character is a byte, and the syntax is the same
        events: list[object] = []
        at = 0
        while True:
            gap = _GAP.match(text, at)
            at = gap.end() if gap is not None else at
            if at == len(text) or text[at] == "]":
                return events, at
            try:
                if text[at] == "[":  # it may enclose the events that follow
                    raise ValueError("a bracket among the events")
                _, end = _PLAIN.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                following = _next_event(text, max(getattr(error, "pos", 0), at + 1))
                if following == len(text) and not final:  # it may only be incomplete
                    return events, at
                self.unread.add(self.offset + at, f"no JSON ({getattr(error, 'msg', error)})")
                at = following
                continue
            if end == len(text) and not final:  # of a number, more digits may follow
                return events, at
            try:
                events.append(self._event(data[at:end], self.offset + at))
            except (msgspec.DecodeError, RecursionError) as error:
                self.unread.add(self.offset + at, f"no event ({error})")
            at = end

    def _event(self, text: bytes, at: int) -> object:
        """The event that an entry is; what a strict reader would refuse of it is said.

        Raises:
            msgspec.DecodeError: it is none.
        """
        odd = "an event with a value that JSON does not know"
        try:
            text.decode()
            return EVENT.decode(text)
        except UnicodeDecodeError as error:
            at, odd = at + error.start, _NOT_UTF8
        except (msgspec.DecodeError, RecursionError):
            pass
        value = _PLAIN.decode(text.decode("utf-8", "replace"))
        written = _SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False))
        event = EVENT.decode(written.encode())
        self.mended.add(at, odd)
        return event


def _next_event(text: str, at: int) -> int:
    """Where the next object with a phase begins; the end of the text where there is none."""
    while (found := _OBJECT.search(text, at)) is not None:
        at = found.start()
        try:
            value, _ = _PLAIN.raw_decode(text, at)
        except (ValueError, RecursionError):
            value = None
        if value is not None and "ph" in value:
            return at
        at += 1
    return len(text)


_EXPORT = "analyze reads what torch.profiler's export_chrome_trace writes, .json or .json.gz"
_BY_START = (  # what a file is that begins so, and what to do about it
    (rb"\x28\xb5\x2f\xfd", "it is compressed with zstd", "unpack it first: zstd -d {}"),
    (rb"BZh", "it is compressed with bzip2", "unpack it first: bunzip2 -k {}"),
    (rb"\xfd7zXZ\0", "it is compressed with xz", "unpack it first: unxz -k {}"),
    (rb"PK\x03\x04", "it is compressed with zip", "unpack it first: unzip {}"),
    (rb"\xff\xfe|\xfe\xff|[{\[]\0|\0[{\[]", "it is UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8 {}"),
    (
        rb"\s*<(?i:!doctype html|html|\?xml|!--|[a-z]+[ >])",
        "it is a web page or XML",
        "download the file itself",
    ),
    (rb"\x80", "it is a Python pickle", "open a memory snapshot at pytorch.org/memory_viz"),
    (rb"(?s)[^{].*[\x00-\x08\x0e-\x1a\x1c-\x1f]", "it is binary, no JSON", _EXPORT),
    (rb"[^{]", "it is no JSON", _EXPORT),
    (rb"\Z", "it is empty", _EXPORT),
)
_KEY = re.compile(rb'[{,]\s*"([A-Za-z_][\w .-]{0,40})"\s*:')


def _no_trace(name: str, head: bytes, bytes_seen: int) -> UsageError:
    """What a file is that begins so, and holds no list of events in as many bytes as were looked through."""
    for start, text, hint in _BY_START:
        if re.match(start, head):
            return UsageError(f"{name} is not a trace: {text}", hint.format(name))
    keys = list(dict.fromkeys(each.decode() for each in _KEY.findall(head[:1024])))[:4]
    where = f" in its first {bytes_seen >> 20} MB" if bytes_seen >= 1 << 20 else ""
    shown = f" (JSON that begins with {', '.join(keys)})" if keys else ""
    return UsageError(f"{name} is not a trace: it has no list traceEvents{where}{shown}", _EXPORT)
