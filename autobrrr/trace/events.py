"""One event of a trace as msgspec decodes it: only the fields that any figure needs.

The two kinds differ in how time is held: numbers for speed, a start's digits themselves where
numbers would lose some. Fields that traces fill with various types are read loosely.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Union

import msgspec
from msgspec import Raw

NO_TEXT = Raw(b"")
Label = int | str | float | None


class Args(msgspec.Struct, gc=False):
    """The arguments that are used; all others are skipped undecoded."""

    device: Label = None
    stream: Label = None
    correlation: Label = None
    bytes: Label = None
    grid: Raw = NO_TEXT
    block: Raw = NO_TEXT
    dims: Raw = msgspec.field(name="Input Dims", default=NO_TEXT)
    dims_old: Raw = msgspec.field(name="Input dims", default=NO_TEXT)
    types: Raw = msgspec.field(name="Input type", default=NO_TEXT)
    concrete: Raw = msgspec.field(name="Concrete Inputs", default=NO_TEXT)
    rank: Label = None


class Event(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event with its times as numbers; ints where the text has neither point nor exponent."""

    cat: str | None = ""
    name: str | None = ""
    pid: Label = None
    tid: Label = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: Args | None = None


class ExactEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event with its start as it stands in the file. Durations are short: numbers do."""

    cat: str | None = ""
    name: str | None = ""
    pid: Label = None
    tid: Label = None
    ts: Raw = NO_TEXT
    dur: int | float | None = None
    args: Args | None = None


def _passed_over(phase: str) -> type[msgspec.Struct]:
    """An event of another phase: none of its fields is decoded."""
    return msgspec.defstruct(f"Phase{ord(phase)}", [], gc=False, tag_field="ph", tag=phase)


# The phases of the trace event format: flows, instants, metadata, counters, nested and async events.
_OTHERS = tuple(_passed_over(phase) for phase in "sftiIMCBEbenPNODSTpFRVvc(),=")

EVENTS: msgspec.json.Decoder[list[object]] = msgspec.json.Decoder(list[Union[(Event, *_OTHERS)]])  # type: ignore[valid-type]
EXACT_EVENTS: msgspec.json.Decoder[list[object]] = msgspec.json.Decoder(list[Union[(ExactEvent, *_OTHERS)]])  # type: ignore[valid-type]
OTHER = _OTHERS[0]()
_LOOSE = json.JSONDecoder(strict=False, parse_float=str, parse_constant=str)


def loose_event(text: str, start: int) -> tuple[object | None, int]:
    """One event of whatever types, from text that msgspec refuses.

    Returns:
        The event (None where the value is no event at all) and where its text ends.

    Raises:
        ValueError: no complete JSON value stands there.
    """
    try:
        value, end = _LOOSE.raw_decode(text, start)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        return None, end
    return (_loosely(value) if value.get("ph") == "X" else OTHER), end


def _loosely(value: Mapping[str, object]) -> ExactEvent:
    args = value.get("args")
    return ExactEvent(
        cat=str(value.get("cat", "")),
        name=str(value.get("name", "")),
        pid=_label(value.get("pid")),
        tid=_label(value.get("tid")),
        ts=_text(value.get("ts")),
        dur=_duration(value.get("dur")),
        args=_loose_args(args) if isinstance(args, dict) else None,
    )


def _loose_args(args: Mapping[str, object]) -> Args:
    def raw(name: str) -> Raw:
        value = args.get(name)
        return Raw(json.dumps(value).encode()) if isinstance(value, list) else NO_TEXT

    return Args(
        correlation=_label(args.get("correlation")),
        device=_label(args.get("device")),
        stream=_label(args.get("stream")),
        grid=raw("grid"),
        block=raw("block"),
        bytes=_label(args.get("bytes")),
        dims=raw("Input Dims"),
        dims_old=raw("Input dims"),
        types=raw("Input type"),
        concrete=raw("Concrete Inputs"),
        rank=_label(args.get("rank")),
    )


def _label(value: object) -> Label:
    if value is None or isinstance(value, (int, float)):
        return value
    return str(value)


def _duration(value: object) -> float | None:
    try:
        us = float(value) if isinstance(value, (int, float, str)) else None
    except ValueError:
        return None
    return us if us is not None and math.isfinite(us) else None


def _text(value: object) -> Raw:
    return NO_TEXT if value is None else Raw(str(value).encode())
