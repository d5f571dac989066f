"""Calibrations on disk: written whole or not at all, read only where they are sound."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from autobrrr.records import Record
from autobrrr.roofline.records import Roofline


def keep(file: Path, record: Record) -> None:
    """Put a record into the cache; a cache that can't be written is no error."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".new")
        try:
            with os.fdopen(handle, "wb") as target:
                target.write(msgspec.json.encode(record))
            os.replace(name, file)
        except OSError:
            os.unlink(name)
    except OSError:
        return


def known_roofline(file: Path) -> Roofline | None:
    """What an earlier run kept; None where there is none, or it can't be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Roofline)
    except (OSError, msgspec.MsgspecError):
        return None
