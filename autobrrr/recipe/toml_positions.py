"""Where each key of a TOML text stands, for messages; the TOML reader itself does not say.

In: a text that is valid TOML. Out: line numbers by path of keys. Strings, comments and brackets are
followed, so that what looks like a key inside a value is not taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Path = tuple[str, ...]

_PART = re.compile(r'"((?:[^"\\\n]|\\.)*)"|\'([^\'\n]*)\'|([A-Za-z0-9_-]+)')
_OPENING = re.compile(r'"""|\'\'\'|"|\'|#|[\[\]{}]|\n')
_LONG_ENDS = {
    '"""': re.compile(r'(?:[^\\]|\\.)*?"{3,5}', re.DOTALL),
    "'''": re.compile(r".*?'{3,5}", re.DOTALL),
}
_SHORT_ENDS = {'"': re.compile(r'(?:[^"\\\n]|\\.)*"'), "'": re.compile(r"[^'\n]*'")}


class KeyLines:
    """Lines of the keys of one text; the first is 1."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: dict[Path, int] = {}
        self._at = 0
        self._line = 1
        self._table: Path = ()
        while self._at < len(text):
            self._statement()

    def line(self, path: Sequence[str]) -> int:
        """The line of a key, or of the nearest key above it that is known; 1 for the whole."""
        for length in range(len(path), 0, -1):
            found = self._lines.get(tuple(path[:length]))
            if found is not None:
                return found
        return 1

    def _statement(self) -> None:
        text = self._text
        letter = text[self._at]
        if letter in " \t\r":
            self._at += 1
        elif letter == "\n":
            self._at += 1
            self._line += 1
        elif letter == "#":
            self._to_line_end()
        elif letter == "[":
            self._at += 2 if text.startswith("[[", self._at) else 1
            self._table = self._key()
            self._lines.setdefault(self._table, self._line)
            self._to_line_end()
        else:
            path = (*self._table, *self._key())
            for length in range(len(self._table) + 1, len(path) + 1):
                self._lines.setdefault(path[:length], self._line)
            self._value()

    def _key(self) -> Path:
        """A dotted key; stops behind it."""
        parts: list[str] = []
        while self._at < len(self._text):
            if self._text[self._at] in " \t.":
                self._at += 1
                continue
            part = _PART.match(self._text, self._at)
            if part is None:
                break
            self._at = part.end()
            basic, literal, bare = part.groups()
            parts.append(bare if bare is not None else literal if literal is not None else _unescaped(basic))
        return tuple(parts)

    def _value(self) -> None:
        """Behind the value that begins here: to the end of its last line."""
        depth = 0
        while (found := _OPENING.search(self._text, self._at)) is not None:
            self._at = found.end()
            mark = found.group()
            if mark == "\n":
                self._line += 1
                if depth <= 0:
                    return
            elif mark == "#":
                self._to_line_end()
            elif mark in "[{":
                depth += 1
            elif mark in "]}":
                depth -= 1
            else:
                self._string(mark)
        self._at = len(self._text)

    def _string(self, mark: str) -> None:
        closing = (_LONG_ENDS[mark] if len(mark) == 3 else _SHORT_ENDS[mark]).match(self._text, self._at)
        end = len(self._text) if closing is None else closing.end()
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _to_line_end(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_SHORT = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found.group(1) or found.group(2)
        return chr(int(code, 16)) if code else _SHORT.get(found.group(3), found.group(3))

    return _ESCAPE.sub(plain, text)
