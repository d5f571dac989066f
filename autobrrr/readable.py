"""Foreign text (names of processes, scripts, kernels, files; what an agent says), made safe to show.

In: `Foreign`, which is no `str`: a type checker finds where it would be shown as it stands. Out: text in
which what would steer a terminal, turn its direction, break a line or not be encoded stands as its escape:
`\\x1b`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

MOST_CHARACTERS = 1 << 13  # of one text; the name of a kernel may be that long
AGENT_CHARACTERS = 1 << 12  # of one text of an agent
MOST_DEPTH = 64
MOST_INTEGER = 1 << 63
Clean = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Foreign:
    """Text of somebody else's making, as it came in `raw`; printed or formatted it is readable."""

    raw: str

    def __str__(self) -> str:
        return readable(self)

    def __format__(self, form: str) -> str:
        return format(readable(self), form)

    def __repr__(self) -> str:
        return f"Foreign({readable(self)!r})"


def readable(text: Foreign | str, most: int = MOST_CHARACTERS) -> str:
    """The text with escapes for what is not to be shown as it is; odd spaces become plain ones.

    Args:
        most: More characters than these are cut off, and the cut is marked.
    """
    whole = text.raw if isinstance(text, Foreign) else text
    shown = whole[:most]
    if not shown.isprintable():
        shown = "".join(map(_shown, shown))
    if len(whole) > most or len(shown) > most:
        return shown[: max(0, most - 1)] + "…"
    return shown


def readable_lines(text: str) -> str:
    """The same for a text of several lines, which stay."""
    return "\n".join(map(readable, text.split("\n")))


def spoken(text: str) -> str:
    """What an agent says: no longer than a sentence, a path or a signature of a kernel."""
    return readable(text, AGENT_CHARACTERS)


def cleaned(value: object, clean: Clean = readable, depth: int = MOST_DEPTH) -> object:
    """A tree of JSON with every text in it cleaned, keys too.

    What no record holds becomes None: numbers that are none, or larger than a 64-bit integer, and what lies
    too deep.
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -MOST_INTEGER <= value < MOST_INTEGER else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list) and depth > 0:
        return [cleaned(each, clean, depth - 1) for each in value]
    if isinstance(value, dict) and depth > 0:
        return {readable(str(key)): cleaned(each, clean, depth - 1) for key, each in value.items()}
    return None


def fields(message: Mapping[str, object], clean: Clean = readable) -> dict[str, object]:
    """A message of another process with every text in it cleaned."""
    return {readable(key): cleaned(each, clean) for key, each in message.items()}


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if character.isspace() and code >= 0xA0 and code not in (0x2028, 0x2029):
        return " "
    if 0xDC80 <= code <= 0xDCFF:
        character = chr(code - 0xDC00)  # a byte that was no UTF-8
    return character.encode("unicode_escape").decode()


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant by a word that is none of them."""
    import difflib  # only where something is wrong

    near = difflib.get_close_matches(word[:100], list(names), n=1, cutoff=0.5)
    return near[0] if near else None
