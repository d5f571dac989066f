"""The flags that a script declares to argparse, read from its text: names, defaults, kinds.

In: a script's file. Out: what it declares, as far as its own text shows it. Nothing is run.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from autobrrr.recipe.recipe_contents import Value
from autobrrr.recipe.script_flags import known_flags, own_words, script_of, syntax_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One flag. `default` None: none, or not a constant; `spellings`: every name that it goes by."""

    default: Value | None = None
    switch: bool = False
    spellings: tuple[str, ...] = ()


def declared_flags(command: Sequence[str]) -> dict[str, Declared]:
    """The long and short flags that the text of a command's script shows.

    Where that may not be all, since more modules or a file of settings have their say, defaults are left out.
    """
    script = script_of(command)
    tree = None if script is None else syntax_of(Path(script))
    if script is None or tree is None:
        return {}
    whole = known_flags(Path(script)) is not None
    found: dict[str, Declared] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr != "add_argument":
            continue
        keywords = {each.arg: each.value for each in node.keywords}
        action = _constant(keywords.get("action"))
        switch = action in ("store_true", "store_false")
        default = _constant(keywords.get("default")) if whole else None
        if action == "store_false" and default is True:  # of what it takes away: by itself it is off
            default = False
        names = [str(name) for name in map(_constant, node.args) if str(name).startswith("-")]
        found |= dict.fromkeys(names, Declared(default=default, switch=switch, spellings=tuple(names)))
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def given_value(command: Sequence[str], flag: str, declared: Mapping[str, Declared]) -> Value | None:
    """The value that a flag has in a command, else its default; numbers as numbers.

    As argparse reads it: by any of its spellings, a long one cut short where that is clear, a short one with
    its value behind it; the last one counts.
    """
    known = declared.get(flag, Declared())
    parser = _Parser(add_help=False, argument_default=argparse.SUPPRESS, conflict_handler="resolve")
    for name, each in [*declared.items(), (flag, known)]:  # the last one has its spellings to itself
        takes = {"action": "store_true"} if each.switch else {"nargs": "?", "const": True}
        parser.add_argument(*(each.spellings or (name,)), dest=name, **takes)
    words = list(command)
    try:
        read, _ = parser.parse_known_args(words[own_words(words) or 0 :])
    except ValueError:  # the script refuses it, too
        return known.default
    found: Value | None = getattr(read, flag, known.default)
    number = as_number(found) if isinstance(found, str) else None
    return found if number is None else number


def _constant(node: ast.expr | None) -> Value | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str | int | float | bool) else None


def as_number(text: str) -> int | float | None:
    """A finite number; None where it is none."""
    for read in (int, float):
        with contextlib.suppress(ValueError, OverflowError):
            number = read(text)
            return number if math.isfinite(number) else None
    return None
