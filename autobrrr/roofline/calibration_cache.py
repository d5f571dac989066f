"""Calibrations on disk: written whole or not at all, read only where they are sound."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from autobrrr.folders import open_plain
from autobrrr.paths import make_closed
from autobrrr.records import SCHEMA, Record
from autobrrr.roofline.roofline_records import Roofline

MOST_BYTES = 1 << 24
R = TypeVar("R", bound=Record)


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


def known_roofline(file: Path, say: Callable[[str], None] = lambda line: None) -> Roofline | None:
    """What an earlier run kept; None where there is none, or it can't be used, which is said."""
    return known(file, Roofline, lambda found: found.schema == SCHEMA, say)


def known(file: Path, kind: type[R], sound: Callable[[R], bool], say: Callable[[str], None]) -> R | None:
    """A record of the cache; None where there is none, or it is torn, of another version or not sound."""
    try:
        with open(open_plain(file), "rb") as opened:
            found = msgspec.json.decode(opened.read(MOST_BYTES), type=kind)
        if sound(found):
            return found
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    say(f"{file} is torn or of another version: what it held is measured anew")
    return None
