"""Events one by one, by the plain JSON parser: the slow way, for what the quick way refuses.

An entry that is no event is passed over and counted. Behind text that is no JSON, reading goes on with the
next object that looks like an event; what lies between is counted as one entry.
"""

from __future__ import annotations

import json
import re

import msgspec
from msgspec import Struct

from autobrrr.trace.reading.tally import Tally
from autobrrr.trace.reading.trace_events import LOOSE_EVENT

NOT_UTF8 = "a byte that is no UTF-8"
_GAP = re.compile(r"[ \t\r\n,]*")
_LIST_END = re.compile(r"\][ \t\r\n]*(?:(\})|(,)[ \t\r\n]*(\")?|(\Z))?")
_SURE_OF_END = 1 << 16  # characters of white space behind a bracket after which nothing more is waited for
_ALMOST_THERE = 12  # characters: a literal or an escape that is cut stands so near the end
_DEEP = 1 << 12  # characters to go on by where the parser can go no deeper
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Number(str):
    """A number as it stands in the text: one that strict JSON does not know is text then."""


_PLAIN = json.JSONDecoder(
    strict=False, parse_float=_Number, parse_int=_Number, parse_constant=lambda name: _Number(f"({name})")
)


class ListPosition:
    """Where reading stands in the list of events, and what of it was odd.

    Args:
        bare: The document is the list.
        passed_over: Gets entries that are no events or no JSON.
        mended: Gets places that were read although they are no proper JSON.
    """

    def __init__(self, *, bare: bool, passed_over: Tally, mended: Tally) -> None:
        self.bare = bare
        self.passed_over = passed_over
        self.mended = mended
        self.lost_at: int | None = None  # in text that is no JSON, from this byte on

    @property
    def lost(self) -> bool:
        """An event has to be found."""
        return self.lost_at is not None

    def lose(self, at: int, what: str) -> None:
        if not self.lost:
            self.passed_over.add(at, what)
            self.lost_at = at


class Walked(Struct, frozen=True, kw_only=True):
    """Events, where each begins in the document, and how many bytes of the text are done with."""

    events: list[object]
    places: list[int]
    used: int


def walk(data: bytes, offset: int, place: ListPosition, *, final: bool) -> Walked:
    """Read entries as far as they are complete, up to the end of the list.

    Args:
        data: Text of the list, which begins before an entry or a comma.
        offset: Of the text in the document.
        final: Nothing more comes, or is waited for: what is incomplete is broken.
    """
    text = data.decode("latin-1")  # a character is a byte, and the syntax is the same
    events: list[object] = []
    places: list[int] = []
    at = 0
    while True:
        gap = None if place.lost else _GAP.match(text, at)
        begin = at = gap.end() if gap is not None else _next_object(text, at)
        if begin == len(text):
            break
        if text[begin] == "]" and list_ends(text, begin, bare=place.bare, final=final) is not False:
            break
        if text[begin] in "[]":
            place.lose(offset + begin, "a bracket among the events")
            at = begin + 1
            continue
        try:
            value, at = _PLAIN.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated string") or error.pos >= len(text) - _ALMOST_THERE
            if cut and not final:
                break
            place.lose(offset + begin, f"no JSON ({error.msg[:1].lower()}{error.msg[1:]})")
            at = max(error.pos, begin + 1)
            continue
        except RecursionError:
            place.lose(offset + begin, "nested too deeply")
            at = min(begin + _DEEP, len(text))
            continue
        if place.lost and not (isinstance(value, dict) and "ph" in value):
            continue
        place.lost_at = None
        try:
            events.append(_event(data[begin:at], offset + begin, place.mended))
            places.append(offset + begin)
        except (msgspec.DecodeError, RecursionError) as error:
            place.passed_over.add(offset + begin, f"no event ({error})")
    return Walked(events=events, places=places, used=at)


def list_ends(text: str, at: int, *, bare: bool, final: bool) -> bool | None:
    """Whether the bracket at this place closes the list of events; None: what follows decides."""
    found = _LIST_END.match(text, at)
    if found is None:
        return False
    brace, comma, quote, end = found.groups()
    if end is not None or (comma and found.end() == len(text)):
        return True if final or found.end() - at > _SURE_OF_END else None
    return not bare and (brace is not None or quote is not None)


def _next_object(text: str, at: int) -> int:
    found = text.find("{", at)
    return len(text) if found < 0 else found


def _event(text: bytes, at: int, mended: Tally) -> object:
    """The event that an entry is; what a strict reader would refuse of it is said.

    Raises:
        msgspec.DecodeError: it is none.
    """
    odd = ""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        at, odd = at + error.start, NOT_UTF8
    try:
        event = LOOSE_EVENT.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _PLAIN.decode(text.decode("utf-8", "replace"))
        if isinstance(value, dict) and any(isinstance(value.get(key), _Number) for key in ("cat", "name")):
            raise msgspec.ValidationError("a name is a number") from None
        written = _SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False))
        event = LOOSE_EVENT.decode(written.encode())
        odd = odd or "an event with a value that JSON does not know"
    if odd:
        mended.add(at, odd)
    return event
