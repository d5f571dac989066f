"""What all records are made of: their base, the words that they use, their way out as JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

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
Confidence = Literal["high", "low"]
ExactnessClass = Literal["bitwise", "rounding", "stream", "changes-training"]
Reach = Literal["live", "next_epoch", "relaunch", "edit"]  # edit: of the script, by its author
AttachMethod = Literal["preload", "remote_exec", "ptrace", "outside"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records; unknown fields on decoding are ignored."""


def to_json(record: Record) -> str:
    """One record as one line of JSON."""
    return msgspec.json.encode(record).decode()
