"""What all records are made of: their base, the words that they use, their way out as JSON."""

from __future__ import annotations

import json
import re
import threading
from typing import Annotated, Literal, TypeVar

import msgspec

from autobrrr.readable import cleaned

SCHEMA = 1

Regime = Literal[
    "overhead",
    "input",
    "host",
    "sync",
    "communication",
    "memory",
    "compute",
    "underfilled",
    "mixed",
    "unknown",
]
Limit = Literal[
    "host",
    "input",
    "sync",
    "communication",
    "kernels",
    "garbage",
    "recompilation",
    "startup",
    "shared",
    "mixed",
    "unknown",
]
Confidence = Literal["high", "low"]
ExactnessClass = Literal["bitwise", "rounding", "stream", "changes-training"]
Reach = Literal["live", "next_epoch", "relaunch", "edit"]  # edit: of the script, by its author
AttachMethod = Literal["preload", "remote_exec", "ptrace", "outside"]
TwoNumbers = Annotated[list[float], msgspec.Meta(min_length=2, max_length=2)]  # low, high; before, after

T = TypeVar("T")
# msgspec learns a type when it first meets it; two threads that teach it one at once crash the process.
_CONVERTING = threading.Lock()
_BEYOND_ASCII = re.compile(r"[^ -~]+")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records; unknown fields on decoding are ignored."""


class MayAbstain(Record, frozen=True, kw_only=True):
    """Base of what may not have been measured: all else is empty then, and `why` says why."""

    status: Literal["ok", "abstained"]
    why: str | None = None


def as_record(raw: object, kind: type[T]) -> T:
    """Plain values as a record that JSON can say; raises msgspec.ValidationError. For any thread."""
    with _CONVERTING:
        record = msgspec.convert(raw, kind)
    try:
        msgspec.json.encode(record)
    except (UnicodeEncodeError, RecursionError) as error:
        raise msgspec.ValidationError(f"it can't be written as JSON: {error}") from None
    return record


def to_json(record: Record) -> str:
    """One record as one line of JSON in ASCII, which no terminal takes for a command.

    A byte of a command that is no UTF-8 stands in it as its escape.
    """
    try:
        text = msgspec.json.encode(record).decode()
    except UnicodeEncodeError:
        text = msgspec.json.encode(cleaned(msgspec.to_builtins(record), _encodable)).decode()
    return _BEYOND_ASCII.sub(lambda found: json.dumps(found.group())[1:-1], text)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
