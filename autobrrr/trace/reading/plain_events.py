"""Events one by one, by the plain JSON parser: the slow way, for what the quick way refuses.

An entry that is no event is passed over and counted. Behind text that is no JSON, reading goes on with the
next object that looks like an event; what lies between is counted as one entry.
"""

from __future__ import annotations

import json
import re

import msgspec

from autobrrr.trace.reading.trace_events import EVENT

NOT_UTF8 = "a byte that is no UTF-8"
_GAP = re.compile(r"[ \t\r\n,]*")
_OBJECT = re.compile(r'\{[ \t\r\n]*"')  # with a member: a parser's error costs a walk through all before it
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = json.JSONDecoder(strict=False, parse_float=str, parse_int=str, parse_constant=str)  # digits are kept


class Tally:
    """Counts places of a document and keeps the first; `at` is a byte of its (inflated) text."""

    def __init__(self) -> None:
        self.count = 0
        self.at: int | None = None
        self.what = ""

    def add(self, at: int, what: str, count: int = 1) -> None:
        if self.at is None or at < self.at:
            self.at, self.what = at, what
        self.count += count

    @property
    def first(self) -> str:
        return f"at byte {self.at}: {self.what}"


def one_by_one(
    data: bytes, offset: int, passed_over: Tally, mended: Tally, *, final: bool
) -> tuple[list[object], int]:
    """The events of a stretch, and how many of its bytes are done with: up to the list's end, at most.

    Args:
        data: Text of the list, which begins before an entry or a comma.
        offset: Of the text in the document.
        passed_over: Gets entries that are no events or no JSON.
        mended: Gets places that were read although they are no proper JSON.
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
            passed_over.add(offset + at, f"no JSON ({getattr(error, 'msg', error)})")
            at = following
            continue
        if end == len(text) and not final:  # of a number, more digits may follow
            return events, at
        try:
            events.append(_event(data[at:end], offset + at, mended))
        except (msgspec.DecodeError, RecursionError) as error:
            passed_over.add(offset + at, f"no event ({error})")
        at = end


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


def _event(text: bytes, at: int, mended: Tally) -> object:
    """The event that an entry is; what a strict reader would refuse of it is said.

    Raises:
        msgspec.DecodeError: it is none.
    """
    odd = "an event with a value that JSON does not know"
    try:
        text.decode()
        return EVENT.decode(text)
    except UnicodeDecodeError as error:
        at, odd = at + error.start, NOT_UTF8
    except (msgspec.DecodeError, RecursionError):
        pass
    value = _PLAIN.decode(text.decode("utf-8", "replace"))
    written = _SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False))
    event = EVENT.decode(written.encode())
    mended.add(at, odd)
    return event
