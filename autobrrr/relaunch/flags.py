"""The flags that a script declares to argparse, read from its text: names, defaults, kinds.

In: a script's file. Out: what it declares; nothing where that can't be told from its own text. Nothing
is run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autobrrr.recipe.contents import Value
from autobrrr.recipe.flags import known_flags, script_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One flag. `default` None: none, or not a constant."""

    default: Value | None = None
    switch: bool = False


def declared_flags(command: Sequence[str]) -> dict[str, Declared]:
    """The long and short flags of the script that a command runs; empty where they can't be told."""
    script = script_of(command)
    if script is None or known_flags(Path(script)) is None:
        return {}
    found: dict[str, Declared] = {}
    for node in ast.walk(ast.parse(Path(script).read_bytes())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr != "add_argument":
            continue
        keywords = {each.arg: each.value for each in node.keywords}
        action = _constant(keywords.get("action"))
        switch = action in ("store_true", "store_false")
        default = _constant(keywords.get("default"))
        for name in node.args:
            flag = _constant(name)
            if isinstance(flag, str) and flag.startswith("-"):
                found[flag] = Declared(default=default, switch=switch)
    return found


def given_value(command: Sequence[str], flag: str, declared: Mapping[str, Declared]) -> Value | None:
    """The value that a flag has in a command, else its default; numbers as numbers."""
    words = list(command)
    script = script_of(words)
    after = words[words.index(script) + 1 :] if script is not None else words
    for i, word in enumerate(after):
        if word.startswith(f"{flag}="):
            return _number(word.partition("=")[2])
        if word == flag:
            if flag in declared and declared[flag].switch:
                return True
            return _number(after[i + 1]) if i + 1 < len(after) else True
    return declared[flag].default if flag in declared else None


def _constant(node: ast.expr | None) -> Value | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str | int | float | bool) else None


def _number(text: str) -> Value:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
