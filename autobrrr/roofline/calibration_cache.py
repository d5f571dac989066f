"""Calibrations on disk: written whole or not at all, read only where they are sound."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from autobrrr.folders import open_plain
from autobrrr.paths import make_closed
from autobrrr.records import SCHEMA, Record

MOST_BYTES = 1 << 24
R = TypeVar("R", bound=Record)


def cached_file(cache: Path, kind: str, *, device: str, torch: str, threads: int) -> Path:
    """Where a calibration of this device, torch and number of threads is kept."""
    key = hashlib.sha256(f"{device}|{torch}".encode()).hexdigest()[:12]
    return cache / "roofline" / f"{kind}-{key}-{threads}.json"


def keep(file: Path, record: Record) -> None:
    """Put a record into the cache; a cache that can't be written is no error."""
    try:
        make_closed(file.parent)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".new")
        try:
            with os.fdopen(handle, "wb") as target:
                target.write(msgspec.json.encode(record))
            os.replace(name, file)
        except OSError:
            os.unlink(name)
    except OSError:
        return


def known(file: Path, kind: type[R]) -> R | None:
    """What an earlier run kept; None where there is none, or where it is torn or of another version."""
    try:
        with open(open_plain(file), "rb") as opened:
            found = msgspec.json.decode(opened.read(MOST_BYTES), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if getattr(found, "schema", SCHEMA) == SCHEMA else None
