"""One event of a trace as msgspec decodes it: only the fields that any figure needs.

A start is held as its digits, since a float would lose some. Fields that traces fill with various
types are read loosely.
"""

from __future__ import annotations

from typing import Union

import msgspec
from msgspec import Raw

NO_TEXT = Raw(b"")
Label = int | str | float | None


def whole(label: Label, otherwise: int) -> int:
    """A whole number, also from its text."""
    try:
        value = int(label) if label is not None else otherwise
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return value if abs(value) < 2**62 else otherwise


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


class TraceEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event with its start as it stands in the file. Durations are short: numbers do."""

    ts: Raw
    cat: str | None = ""
    name: str | None = ""
    pid: Label = None
    tid: Label = None
    dur: float | None = None
    args: Args | None = None


def _passed_over(phase: str) -> type[msgspec.Struct]:
    """An event of another phase: none of its fields is decoded."""
    return msgspec.defstruct(f"Phase{ord(phase)}", [], gc=False, tag_field="ph", tag=phase)


# The phases of the trace event format: flows, instants, metadata, counters, nested and async events.
_OTHER_PHASES = "sftiIMCEbenPNODSTpFRVvc(),="
PHASES = frozenset(_OTHER_PHASES + "XB")
Begin = _passed_over("B")  # of a span in two events
_OTHERS: tuple[type[msgspec.Struct], ...] = (*map(_passed_over, _OTHER_PHASES), Begin)

# Not strict: some programs quote their numbers.
EVENTS: msgspec.json.Decoder[list[object]] = msgspec.json.Decoder(
    list[Union[(TraceEvent, *_OTHERS)]],  # type: ignore[valid-type]
    strict=False,
)
EVENT: msgspec.json.Decoder[object] = msgspec.json.Decoder(Union[(TraceEvent, *_OTHERS)], strict=False)
