"""The flags that a script declares to argparse, read from its text: names, defaults, kinds.

In: a script's file. Out: what it declares, as far as its own text shows it. Nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

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


def given_value(command: Sequence[str], flag: str, declared: Mapping[str, Declared]) -> Value | None:
    """The value that a flag has in a command, else its default; numbers as numbers.

    As argparse reads it: by any of its spellings, a long one cut short where that is clear, a short one with
    its value behind it; the last one counts.
    """
    known = declared.get(flag, Declared())
    words = list(command)
    after = words[own_words(words) or 0 :]
    found = known.default
    for word, follower in zip_longest(after, after[1:]):
        name, equals, value = word.partition("=")
        if _spells(name, flag, known, declared):
            if equals:
                found = _number(value)
            else:
                found = True if known.switch or follower is None else _number(follower)
        elif not known.switch and _spells(word[:2], flag, known, declared) and not word.startswith("--"):
            found = _number(word[2:])
    return found


def _spells(word: str, flag: str, known: Declared, declared: Mapping[str, Declared]) -> bool:
    if word == flag or word in known.spellings:
        return True
    if not word.startswith("--") or word in declared:
        return False
    meant = {declared[name].spellings for name in declared if name.startswith(word)}
    return meant == {known.spellings} and bool(known.spellings)


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
