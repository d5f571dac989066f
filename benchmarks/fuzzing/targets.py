"""The parsers that read what others wrote: each takes the input of a seed and says what is wrong.

A target returns sentences on what was lost without a word; anything that it raises is a crash.
"""

from __future__ import annotations

import json
import os
import random
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.injected.wire import ring_layout
from autobrrr.injected.wire.framing import BadFrame, decode, encode
from autobrrr.recipe.recipe_reader import parse
from autobrrr.recipe.recipe_schema import template
from autobrrr.records.log_lines import LogLines
from autobrrr.sidecar.session.ring_reader import RECORD, RingReader
from benchmarks.fuzzing.trace_documents import case
from benchmarks.fuzzing.trace_target import problems

_JUNK = (
    b"\0" * 64,
    b"\xff",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b"\n",
    b"\\",
    b",",
    b"1e999",
    b"9" * 400,
    b"\xef\xbb\xbf",
)
_RECIPE = (
    template().replace("# [", "[").encode()
    + b'\n[args]\n"--workers" = 2\n"--rate" = 0.5\n[evidence]\nspeedup = 1.5\ninterval = [1.4, 1.6]\n'
)


def mutated(text: bytes, dice: random.Random) -> bytes:
    """One to four changes: an edited byte, a stretch that is cut out or doubled, junk put in."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(text) + 1)
        length = dice.choice((1, 2, 9, 70))
        text = dice.choice(
            (
                text[:at] + bytes([dice.randrange(256)]) + text[at + 1 :],
                text[:at] + text[at + length :],
                text[: at + length] + text[at:],
                text[:at] + dice.choice(_JUNK) + text[at:],
            )
        )
    return text


def trace(seed: int) -> list[str]:
    return problems(case(seed))


def session_log(seed: int) -> list[str]:
    """Every line that is whole JSON comes out or is counted."""
    dice = random.Random(seed)
    kinds = ("snapshot", "trial", "note", "ended")
    entries = [{"at": float(at), "kind": dice.choice(kinds), "body": {"n": at}} for at in range(12)]
    text = mutated(b"".join(json.dumps(each).encode() + b"\n" for each in entries), dice)
    lines = LogLines(text.splitlines(keepends=True))
    found = list(lines)
    filled = sum(bool(each.strip()) for each in text.splitlines())
    if len(found) + lines.unread < filled:
        return [f"{filled} lines, {len(found)} read and {lines.unread} counted"]
    if lines.unread and not lines.said:
        return ["lines were passed over, and nothing was said"]
    return []


def recipe(seed: int) -> list[str]:
    """A recipe, or one line with its place."""
    dice = random.Random(seed)
    text = mutated(_RECIPE if dice.random() < 0.5 else _RECIPE[-120:], dice)
    if dice.random() < 0.5:
        text = b"schema = 1\n" + text
    try:
        parse(text.decode(errors="replace"))
    except UsageError as error:
        if "\n" in error.message or not error.message.startswith("recipe:"):
            return [f"not one line with a place: {error.message[:80]!r}"]
    return []


def ring_records(seed: int) -> list[str]:
    """Records come in the order of their numbers; those that are missing are counted."""
    dice = random.Random(seed)
    capacity = 16
    text = bytearray(ring_layout.size_bytes(capacity))
    written = dice.randint(0, 40)
    text[: ring_layout.HEADER.size] = ring_layout.HEADER.pack(
        ring_layout.MAGIC, ring_layout.LAYOUT_VERSION, RECORD.itemsize, capacity, 0
    )
    for number in range(written):
        at = ring_layout.HEADER_BYTES + number % capacity * RECORD.itemsize
        struct.pack_into("<q", text, at + RECORD.fields["end_ns"][1], number + 1)
        struct.pack_into("<Q", text, at + RECORD.fields["seq"][1], number)
    sound = dice.random() < 0.3
    if not sound:
        for _ in range(dice.randint(1, 12)):
            text[dice.randrange(len(text))] = dice.randrange(256)
    handle, name = tempfile.mkstemp()
    try:
        os.write(handle, text)
        reader = RingReader(handle)
    except AutobrrrError:
        return []
    finally:
        os.close(handle)
        Path(name).unlink()
    found = reader.read_new()
    lost = reader.lost
    reader.close()
    if sound and len(found) + lost != written:
        return [f"{written} records, {len(found)} read and {lost} counted as lost"]
    return [] if lost >= 0 else [f"{lost} records counted as lost"]


def wire(seed: int) -> list[str]:
    """A frame is an object of this version, or a BadFrame; what was sent comes back."""
    dice = random.Random(seed)
    sent: dict[str, object] = {"do": "apply", "id": seed, "names": ["a", "é", {"x": [1, None, True]}]}
    frame = encode(sent)
    if decode(frame[4:]) != {"v": 1, **sent}:
        return ["a sound frame was not read"]
    body = mutated(frame[4:], dice)
    try:
        found = decode(body)
    except BadFrame:
        return []
    return [] if isinstance(found, dict) and found.get("v") == 1 else [f"taken for a frame: {body[:60]!r}"]


TARGETS: dict[str, Callable[[int], list[str]]] = {
    "trace": trace,
    "session-log": session_log,
    "recipe": recipe,
    "ring": ring_records,
    "wire": wire,
}
