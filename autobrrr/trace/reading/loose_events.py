"""One event after the other, of whatever types and encoding: the exact and slow way of the splitter.

In comes a stretch of the list of events that the quick way refused, out go its events and where
each begins. An entry that is no event, or no JSON, is passed over alone and counted.
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from autobrrr.trace.reading.tally import Tally
from autobrrr.trace.reading.trace_events import (
    EXACT_EVENT,
    NO_TEXT,
    OTHER,
    PHASES,
    Args,
    BeginEvent,
    ExactEvent,
    Label,
)

_GAP = re.compile(r"[ \t\r\n,]*")
_LIST_END = re.compile(r"\][ \t\r\n]*(?:(\})|(,)[ \t\r\n]*(\")?|(\Z))?")
_SURE_OF_END = 1 << 16  # characters of white space behind a bracket after which nothing more is waited for
_ALMOST_THERE = 12  # characters: a literal or an escape that is cut stands so near the end
_DEEP = 1 << 12  # characters, about: what lies too deep takes as long as these
_EFFORT = 16  # times the length of the text may be parsed in the search for the next event
_MOST_DIGITS = 60
_LIST_LIMIT = 1 << 12  # characters of a list among the events for whose end is waited
_KEPT = 1 << 14  # characters in which the end of the list is looked for behind a broken last event
NOT_UTF8 = "a byte that is no UTF-8"


class Due(enum.Enum):
    """What may come next in the list."""

    FIRST = enum.auto()  # an entry, or the end
    COMMA = enum.auto()  # a comma, or the end
    ENTRY = enum.auto()


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
        self.due = Due.FIRST
        self.lost_at: int | None = (
            None  # in text that is no JSON, from this byte on: an event has to be found
        )

    @property
    def lost(self) -> bool:
        return self.lost_at is not None

    def take_commas(self, count: int, at: int) -> None:
        if count > 1 or self.due is not Due.COMMA:
            self.mended.add(at, "a comma too many")
        self.due = Due.ENTRY

    def lose(self, at: int, what: str) -> None:
        self.passed_over.add(at, what)
        self.lost_at = at


class Walked(Struct, frozen=True, kw_only=True):
    """Events, where each begins in the document, and how many bytes of the text are done with."""

    events: list[object]
    places: list[int]
    used: int


class _Unreadable(Exception):
    """This value is no event; says what it is."""


def walk(data: bytes, offset: int, place: ListPosition, *, final: bool, patient: bool = True) -> Walked:
    """Read entries as far as they are complete, up to the end of the list.

    Args:
        data: Text of the list, which begins before an entry or a comma.
        offset: Of the text in the document.
        final: Nothing more comes: what is incomplete is broken.
        patient: Without it, an entry that does not end is passed over up to the next that does.
    """
    return _Walk(data, offset, place, final, patient and not final).run()


def list_ends(text: str, at: int, *, bare: bool, final: bool) -> bool | None:
    """Whether the bracket at this place closes the list of events; None: what follows decides."""
    found = _LIST_END.match(text, at)
    if found is None:
        return False
    brace, comma, quote, end = found.groups()
    if end is not None or (comma and found.end() == len(text)):
        return True if final or found.end() - at > _SURE_OF_END else None
    return not bare and (brace is not None or quote is not None)


class _Walk:
    def __init__(self, data: bytes, offset: int, place: ListPosition, final: bool, patient: bool) -> None:
        self.text = data.decode("utf-8", "surrogateescape")
        self.plain = len(self.text) == len(data)
        self.base = offset
        self.place = place
        self.final = final
        self.patient = patient
        self._at = 0
        self.events: list[object] = []
        self.places: list[int] = []
        self._known = (0, 0)  # a character and its byte

    def run(self) -> Walked:
        at = 0
        while True:
            stopped = self._search(at) if self.place.lost else self._step(at)
            if stopped is None:
                break
            at = stopped
        return Walked(events=self.events, places=self.places, used=self._bytes(self._at))

    def _step(self, at: int) -> int | None:
        """Behind the entry or gap that begins here; None where nothing more can be done."""
        text, place = self.text, self.place
        gap = _GAP.match(text, at)
        begin = gap.end() if gap is not None else at
        self._at = begin
        commas = text.count(",", at, begin)
        if commas:
            place.take_commas(commas, self._offset(at))
        if begin == len(text):
            return None
        if text[begin] == "]":
            ends = list_ends(text, begin, bare=place.bare, final=self.final)
            return self._broken(begin, "a bracket that closes nothing") if ends is False else None
        try:
            value, end = _parse(text, begin)
        except _Cut:
            nested = text[begin] == "[" and len(text) - begin > _LIST_LIMIT
            waits = self.patient and not nested
            return None if waits else self._broken(begin, "an entry that does not end")
        except _NoValue as error:
            return self._broken(begin, str(error))
        if isinstance(value, list) and any(map(_looks_like_event, value)):
            return self._broken(begin, "a bracket before an event")
        if end == len(text) and not self.final and text[begin] not in '{["':
            return None  # a number may go on
        if place.due is Due.COMMA:
            place.mended.add(self._offset(begin), "a comma is missing")
        place.due = Due.COMMA
        self._take(value, begin, end)
        self._at = end
        return end

    def _search(self, at: int) -> int | None:
        """The next entry that looks like an event."""
        effort = _EFFORT * len(self.text)
        text = self.text
        begin = text.find("{", at)
        while begin >= 0 and effort > 0:
            try:
                value, end = _parse(text, begin)
            except _Cut:
                if self.patient:
                    self._at = max(at, begin - _KEPT)
                    return None
                effort -= len(text) - begin
            except _NoValue as error:
                effort -= error.read
            else:
                if _looks_like_event(value):
                    self.place.lost_at, self.place.due = None, Due.ENTRY
                    self.patient = not self.final
                    return begin
                effort -= end - begin
            begin = text.find("{", begin + 1)
        self._at = self._end_of_list(at) if self.final else max(at, len(text) - _KEPT)
        return None

    def _end_of_list(self, at: int) -> int:
        """Where a bracket closes the list so that what follows is sound; else the end of the text."""
        text, opened = self.text, "[" if self.place.bare else '{"":['
        begin = text.find("]", max(at, len(text) - _KEPT))
        while begin >= 0:
            try:
                _STRICT.decode(opened + text[begin:])
            except (ValueError, RecursionError):
                begin = text.find("]", begin + 1)
            else:
                self.place.lost_at, self.place.due = None, Due.COMMA
                return begin
        return len(text)

    def _broken(self, at: int, what: str) -> int:
        self.place.lose(self._offset(at), what)
        self._at = at + 1
        return at + 1

    def _take(self, value: object, begin: int, end: int) -> None:
        slice_ = self.text[begin:end].encode("utf-8", "surrogateescape")
        event: object = None
        if isinstance(value, dict) and value.get("ph") == "X":
            try:
                event = EXACT_EVENT.decode(slice_)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                event = None
        try:
            event = event if event is not None else loose_event(value)
        except _Unreadable as error:
            self.place.passed_over.add(self._offset(begin), str(error))
            return
        self._mind_text(slice_, begin)
        self.events.append(event)
        self.places.append(self._offset(begin))

    def _mind_text(self, text: bytes, begin: int) -> None:
        """Say what a strict reader would refuse of an entry that was read."""
        try:
            _STRICT.raw_decode(text.decode())
        except UnicodeDecodeError as error:
            self.place.mended.add(self._offset(begin) + error.start, NOT_UTF8)
        except json.JSONDecodeError as error:
            self.place.mended.add(self._offset(begin + error.pos), "a control character in a text")

    def _offset(self, character: int) -> int:
        return self.base + self._bytes(character)

    def _bytes(self, character: int) -> int:
        if self.plain:
            return character
        known, count = self._known
        if character < known:
            known, count = 0, 0
        count += len(self.text[known:character].encode("utf-8", "surrogateescape"))
        self._known = character, count
        return count


def _looks_like_event(value: object) -> bool:
    return isinstance(value, dict) and "ph" in value


class _Cut(Exception):
    """The text ends before the value does."""


class _NoValue(Exception):
    """What stands here is no JSON; `read` says how many characters it took to see that."""

    def __init__(self, why: str, read: int) -> None:
        super().__init__(why)
        self.read = read


class _Number(str):
    """A number as it stands in the text."""


def _whole(digits: str) -> int | _Number:
    return int(digits) if len(digits) <= _MOST_DIGITS else _Number(digits)


_LOOSE = json.JSONDecoder(strict=False, parse_float=_Number, parse_constant=_Number, parse_int=_whole)
_STRICT = json.JSONDecoder(parse_float=str, parse_constant=str, parse_int=str)


def _parse(text: str, at: int) -> tuple[object, int]:
    """A value and where it ends.

    Raises:
        _Cut: the text ends first.
        _NoValue: no JSON; says what is wrong.
    """
    try:
        value, end = _LOOSE.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated string") or error.pos >= len(text) - _ALMOST_THERE:
            raise _Cut from None
        raise _NoValue(f"no JSON ({error.msg[:1].lower()}{error.msg[1:]})", error.pos - at) from None
    except RecursionError:
        raise _NoValue("nested too deeply", _DEEP) from None
    return value, end


def loose_event(value: object) -> object:
    """The event that a JSON value is, with numbers also where they are quoted.

    Raises:
        _Unreadable: it is none.
    """
    if not isinstance(value, dict):
        raise _Unreadable(f"{_named(value)}, no event")
    phase = value.get("ph")
    if not isinstance(phase, str) or phase not in PHASES:
        raise _Unreadable("an event without a phase" if phase is None else f"phase {str(phase)[:20]!r}")
    if phase == "B":
        return BeginEvent(cat=value.get("cat"))
    if phase != "X":
        return OTHER
    args = value.get("args")
    if args is not None and not isinstance(args, dict):
        raise _Unreadable(f"args: {_named(args)}")
    return ExactEvent(
        cat=_name(value, "cat"),
        name=_name(value, "name"),
        pid=_label(value, "pid"),
        tid=_label(value, "tid"),
        ts=_digits(value.get("ts")),
        dur=_duration(value.get("dur")),
        args=None if args is None else _loose_args(args),
    )


def _loose_args(args: Mapping[str, object]) -> Args:
    def raw(name: str) -> Raw:
        return Raw(json.dumps(args[name]).encode()) if name in args else NO_TEXT

    return Args(
        correlation=_label(args, "correlation"),
        device=_label(args, "device"),
        stream=_label(args, "stream"),
        grid=raw("grid"),
        block=raw("block"),
        bytes=_label(args, "bytes"),
        dims=raw("Input Dims"),
        dims_old=raw("Input dims"),
        types=raw("Input type"),
        concrete=raw("Concrete Inputs"),
        rank=_label(args, "rank"),
    )


def _name(value: Mapping[str, object], key: str) -> str | None:
    found = value.get(key, "")
    if found is not None and (not isinstance(found, str) or isinstance(found, _Number)):
        raise _Unreadable(f"{key}: {_named(found)}")
    return found


def _label(value: Mapping[str, object], key: str) -> Label:
    found = value.get(key)
    if isinstance(found, bool) or not (found is None or isinstance(found, int | str)):
        raise _Unreadable(f"{key}: {_named(found)}")
    return found


def _duration(value: object) -> float | None:
    if value is None:
        return None
    try:
        us = float(value) if isinstance(value, int | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        us = math.nan
    if not math.isfinite(us):
        raise _Unreadable(f"dur: {_named(value)}")
    return us


def _digits(value: object) -> Raw:
    """The digits of a start, quoted or not; anything else becomes what no number is."""
    return NO_TEXT if value is None else Raw(str(value).strip().encode("utf-8", "replace") or b"-")


def _named(value: object) -> str:
    if isinstance(value, _Number):
        return str(value[:20])
    if isinstance(value, str):
        return f"{value[:20]!r}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a number"
