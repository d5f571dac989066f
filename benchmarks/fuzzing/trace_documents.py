"""Traces that are mutated, and what a plain JSON parse sees in them.

In comes a seed, out go a document of some thousand bytes, the blocks in which it arrives, and the
events that any reader has to find in it. The same seed gives the same document.
"""

import codecs
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from autobrrr.readable import readable
from autobrrr.trace.reading.nanoseconds import MISSING, to_ns
from autobrrr.trace.reading.trace_columns import ANNOTATION, KIND_OF_CATEGORY
from autobrrr.trace.reading.trace_events import PHASES

Found = Counter[tuple[int, str, int, int]]  # kind, name, start and end in ns

_MARK = "\ufffd"
# What is no character, as either side shows it.
_MARKS = re.compile(r"(?:\ufffd|\\x[89a-f][0-9a-f]|\\ud[89a-f][0-9a-f]{2})+")
_CATEGORIES = ("kernel", "cpu_op", "cuda_runtime", "gpu_memcpy", "user_annotation", "python_function", "ac2g")
_NAMES = (
    "aten::add",
    "} , {",
    '"}, {"ph": "X"',
    "a\\\\",
    "名前 é",
    "[[{",
    "]}",
    "void k<4>(int, {lambda()#1})",
    "x" * 90,
)
_ODD_VALUES = (
    '"5"',
    '"5.25"',
    '"five"',
    "[]",
    "{}",
    "null",
    "true",
    "NaN",
    "-Infinity",
    "1e999",
    "123456789012345678901234567890",
    "-3",
    "0.1234567",
    '"\\ud800"',
    "1e3",
    "9" * 5000,
    "[" * 40 + "]" * 40,
)
KEYS = (b'"ts": ', b'"dur": ', b'"ph": ', b'"args": ')
ODD_BYTES = tuple(bytes([each]) for each in (*b'"{}[],:\\ \x00\xff]}', *range(0, 256, 51)))
ODD_ENTRIES = (
    *(b"null", b"17", b'"a"', b"[]", b"{}", b"[{}]"),
    *(b"/* no */", b"// no\n", b",", b"]", b"[", b"}", b"{"),
)
Change = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One document as it arrives. `plain` is what was there before the last change."""

    seed: int
    change: str
    text: bytes
    plain: bytes
    block_bytes: int

    @property
    def blocks(self) -> list[bytes]:
        size = self.block_bytes
        return [self.text[at : at + size] for at in range(0, len(self.text), size)]


def case(seed: int) -> Case:
    """The document of a seed."""
    dice = random.Random(seed)
    plain = _document(dice)
    change = dice.choice(list(CHANGES))
    return Case(
        seed=seed,
        change=change,
        text=CHANGES[change](plain, dice),
        plain=plain,
        block_bytes=dice.choice((61, 127, 256, 509, 900)),
    )


def seen_by_json(text: bytes) -> tuple[Found, int] | None:
    """Well-formed events of known kinds, and how many entries their list has; None: JSON refuses the text.

    Raises:
        LookupError: it is JSON, but holds no list of events.
    """
    try:
        whole = json.loads(text, parse_float=_Number, parse_constant=_Number, parse_int=_Number)
    except (ValueError, RecursionError):
        return None
    entries = whole.get("traceEvents") if isinstance(whole, dict) else whole
    if not isinstance(entries, list):
        raise LookupError("no list of events")
    found: Found = Counter()
    for each in entries:
        key = _key(each)
        if key is not None:
            found[key] += 1
    return found, len(entries)


def shown(name: str) -> str:
    """A name as figures show it; how many marks a torn character leaves is no matter."""
    return _MARKS.sub(_MARK, readable(name))


class _Number(str):
    """The digits of a number."""


def _key(event: object) -> tuple[int, str, int, int] | None:
    if not isinstance(event, dict) or event.get("ph") != "X" or not _well_formed(event):
        return None
    category, name = event.get("cat", "") or "", event.get("name", "") or ""
    known = (KIND_OF_CATEGORY.get(each.strip(), 0) for each in category.lower().split(","))
    kind = next(filter(None, known), 0)
    if kind == 0 and name.startswith("ProfilerStep") and not category.startswith("gpu_"):
        kind = ANNOTATION
    start = MISSING if event.get("ts") is None else to_ns(event["ts"])
    if kind == 0 or start == MISSING:
        return None
    took = float(event.get("dur") or 0)
    length = to_ns(repr(took)) if math.isfinite(took) else 0
    return kind, shown(name), start, start + max(length, 0)


def _well_formed(event: dict[str, object]) -> bool:
    """Whether the fields that are used are of a type that can be used; numbers may be quoted."""
    args = event.get("args")
    if not (args is None or isinstance(args, dict)):
        return False
    used = (args or {}).get
    labels = [event.get("pid"), event.get("tid")]
    labels += [used(key) for key in ("device", "stream", "correlation", "bytes", "rank")]
    return (
        all(each is None or isinstance(each, str) for each in labels)
        and all(each is None or isinstance(each, str) for each in (event.get("cat"), event.get("name")))
        and (event.get("ts") is None or isinstance(event["ts"], str))
        and _is_duration(event.get("dur"))
    )


def _is_duration(value: object) -> bool:
    if value is None or value in ("NaN", "Infinity", "-Infinity"):  # the reader says that it mends these
        return True
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


def phases(text: bytes) -> int:
    """How many of the list's entries are events of a phase that there is; for texts that JSON reads."""
    whole = json.loads(text, parse_float=_Number, parse_constant=_Number, parse_int=_Number)
    entries = whole["traceEvents"] if isinstance(whole, dict) else whole
    return sum(isinstance(each, dict) and str(each.get("ph")) in PHASES for each in entries)


def _document(dice: random.Random) -> bytes:
    events = ", \n".join(_event(dice, at) for at in range(dice.randint(8, 24)))
    space = dice.choice(("", " ", "\n  ", " " * dice.randint(0, 300)))
    listed = f"[{space}{events}{space}]"
    around = '"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}, {"id": 1}]'
    tail = '"traceName": "a.json", "other": [{"a": 1}, {"b": 2}]'
    return dice.choice(
        (
            f'{{{around}, "traceEvents": {listed}, {tail}}}',
            f'{{{around}, "traceEvents": {listed}}}',
            f'{{"traceEvents": {listed}, {around}}}\n',
            listed,
        )
    ).encode()


def _event(dice: random.Random, at: int) -> str:
    if dice.random() < 0.2:
        return json.dumps(
            {"ph": dice.choice("Mif"), "name": dice.choice(_NAMES), "ts": at, "args": {"x": "}, {"}}
        )
    args: dict[str, object] = {"device": 0, "stream": 7, "correlation": at}
    if dice.random() < 0.4:
        args["nested"] = [{"a": 1}, {"b": [{"c": 2}, {"name": "} , {"}]}]
    event = {
        "ph": "X",
        "cat": dice.choice(_CATEGORIES),
        "name": f"{dice.choice(_NAMES)} {at}",
        "pid": dice.choice((0, "GPU 0", 3.5)),
        "tid": at % 3,
        "args": args,
    }
    items = list(event.items())
    dice.shuffle(items)
    text = json.dumps(dict(items), ensure_ascii=dice.random() < 0.5)
    digits = dice.choice(("17337671370454{:02d}.368", "{}5", "{}.125", "{}"))
    return f'{text[:-1]}, "ts": {digits.format(at + 1)}, "dur": {dice.choice((5, 2.25, 0, 0.001))}}}'


def _spliced(*put: bytes, cut: tuple[int, ...] = (0,), at: bytes = b"(?s)(?=.)") -> Change:
    """At a place that this pattern ends at, some bytes go, and one of these comes."""

    def change(text: bytes, dice: random.Random) -> bytes:
        places = [found.end() for found in re.finditer(at, text)]
        if not places:
            return text
        place = dice.choice(places)
        return text[:place] + dice.choice(put) + text[place + dice.choice(cut) :]

    return change


def _doubled(text: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(text))
    length = dice.choice((1, 3, 30, 200))
    return text[: at + length] + text[at:]


def _retyped(text: bytes, dice: random.Random) -> bytes:
    """One value of one event becomes another type."""
    key = dice.choice(
        ("ts", "dur", "args", "cat", "name", "pid", "tid", "ph", "device", "correlation")
    ).encode()
    places = [at for at in range(len(text)) if text.startswith(b'"' + key + b'": ', at)]
    if not places:
        return text
    begin = dice.choice(places) + len(key) + 4
    try:
        _, end = json.JSONDecoder().raw_decode(text[begin:].decode())
    except ValueError:
        return text
    length = len(text[begin:].decode()[:end].encode())
    return text[:begin] + dice.choice(_ODD_VALUES).encode() + text[begin + length :]


def _twice(text: bytes, dice: random.Random) -> bytes:
    """Two lists in one document, or two documents in one file."""
    other = _document(dice)
    if dice.random() < 0.5 or not text.startswith(b"{") or not other.startswith(b"{"):
        return text + dice.choice((b"", b"\n")) + other
    return text.rstrip()[:-1] + b", " + other[1:]


def _absent(text: bytes, dice: random.Random) -> bytes:
    return text.replace(
        b'"traceEvents"', dice.choice((b'"events"', b'"TraceEvents"', b'"deeper": {"traceEvents"'))
    )


def _encoded(text: bytes, dice: random.Random) -> bytes:
    return dice.choice(
        (
            codecs.BOM_UTF8 + text,
            text.decode().encode("utf-16"),
            text.decode().encode("utf-16-be"),
            text.decode().encode("latin-1", "replace"),
        )
    )


EDITED, INSERTED, DELETED, BETWEEN, TORN = (
    _spliced(*ODD_BYTES, cut=(1,)),
    _spliced(*ODD_BYTES),
    _spliced(b"", cut=(1, 1, 2, 40)),
    _spliced(
        *(b", " + each + pad for each in ODD_ENTRIES for pad in (b"", b" " * 900)), at=rb'\}(?=, \n\{")'
    ),
    _spliced(b"\x01", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\\u12", b"\\q", b"\x00", at=b"(?=[A-Za-z])"),
)


def _several(text: bytes, dice: random.Random) -> bytes:
    for _ in range(dice.randint(2, 5)):
        text = dice.choice((EDITED, INSERTED, DELETED, _retyped, BETWEEN))(text or b" ", dice)
    return text


CHANGES: dict[str, Change] = {
    "none": lambda text, _: text,
    "byte edited": EDITED,
    "byte inserted": INSERTED,
    "bytes deleted": DELETED,
    "bytes doubled": _doubled,
    "value of another type": _retyped,
    "value of another type, again": _retyped,
    "something between events": BETWEEN,
    "key twice": _spliced(
        *(key + value + b", " for key in KEYS for value in (b'"M"', b'"X"', b"7", b"{}", b"[1")),
        at=b"(?=%s)" % b"|".join(KEYS),
    ),
    "cut": _spliced(b"", cut=(1 << 30,)),
    "white space": _spliced(
        *(space * many for space in (b" ", b"\n", b"\t\r\n") for many in (1, 700, 5000)), at=rb"(?=[{,\]])"
    ),
    "two lists or documents": _twice,
    "no list": _absent,
    "encoding": _encoded,
    "characters": TORN,
    "several": _several,
}
SMALL_CHANGES = ("byte edited", "byte inserted", "something between events", "characters")
