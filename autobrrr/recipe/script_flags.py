"""Flags of a script: where they stand in a command, and which ones a script certainly does not know.

In: the words of a command, the flags of a recipe. Out: the command with them. The script itself is only read.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

MOST_BYTES = 1 << 20
SCRIPTS = (".py", ".sh")
RUNS_NEXT = ("-m", "-c", "--module")
NO_PLACE = "where the script's own flags begin can't be told from this command"
# What takes flags from elsewhere than the calls of `add_argument` in the script's own text.
OTHER_SOURCES = {
    "ArgumentParser": {"parents"},
    "HfArgumentParser": None,
    "parse_known_args": None,
    "parse_known_intermixed_args": None,
    "set_defaults_from_dataclass": None,
}


def script_of(command: Sequence[str]) -> str | None:
    """The script that a command runs, also under a launcher: its first Python file."""
    return next((word for word in command if word.endswith(".py")), None)


def own_words(command: Sequence[str]) -> int | None:
    """Where the words begin that the program which trains reads itself; None where that can't be told.

    What stands before them is read by an interpreter or a launcher, whose flags name modules, code and files.
    They follow the first script, else the last `-m MODULE` or `-c CODE`, else a command that is a script.
    """
    words = list(command)
    script = next((i for i, word in enumerate(words) if word.endswith(SCRIPTS)), None)
    if script is not None:
        return script + 1
    for i in reversed(range(1, len(words))):
        name, equals, _ = words[i].partition("=")
        if name in RUNS_NEXT:
            return min(i + (1 if equals else 2), len(words))
        if words[i][:2] in RUNS_NEXT:
            return i + 1
    return 1 if words and _is_script(words[0]) else None


def _is_script(command: str) -> bool:
    file = shutil.which(command)
    try:
        with open(file or command, "rb") as opened:
            return opened.read(2) == b"#!"
    except (OSError, ValueError):
        return False


def with_flags(command: Sequence[str], flags: Mapping[str, object]) -> list[str]:
    """The command with each flag's value replaced where the flag stands, else appended.

    Only the program's own words are looked at, see `own_words`; where those can't be told, the command stays
    as it is. True is the flag alone; False and None take it away. A new flag is written as the command writes
    its own: some scripts read `--flag=value` only.
    """
    words = list(command)
    first = own_words(words)
    if first is None:
        return words
    joins = _joins_values(words[first:])
    for flag, value in flags.items():
        at = next(
            (i for i in range(first, len(words)) if words[i] == flag or words[i].startswith(f"{flag}=")), None
        )
        alone = isinstance(value, bool) or value is None
        if at is None:
            if value is not None and value is not False:
                joined = joins and flag.startswith("--")
                words += [flag] if alone else [f"{flag}={value}"] if joined else [flag, str(value)]
        elif value is None or value is False:
            del words[at]
        elif not alone and words[at] == flag:
            words[at + 1 : at + 2] = [str(value)]
        elif not alone:
            words[at] = f"{flag}={value}"
    return words


def _joins_values(words: Sequence[str]) -> bool:
    """Every long flag that has a value is written `--flag=value`, and there is one."""
    long = [i for i, word in enumerate(words) if word.startswith("--")]
    apart = any("=" not in words[i] and i + 1 < len(words) and not words[i + 1].startswith("-") for i in long)
    return not apart and any("=" in words[i] for i in long)


def unknown_flags(script: str | None, flags: Iterable[str]) -> list[str]:
    """Flags that the script would refuse, as its text shows; none where the text does not show it."""
    known = None if script is None else known_flags(Path(script))
    return [] if known is None else [flag for flag in flags if not _is_known(flag, known)]


def known_flags(script: Path) -> set[str] | None:
    """Every flag that a script adds to its argparse parser; None where it can't be told from its text."""
    tree = syntax_of(script)
    if tree is None:
        return None
    found: set[str] = set()
    parses = False
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            return None  # of a package: its other modules may add flags
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        keywords = {keyword.arg for keyword in node.keywords}
        if name in OTHER_SOURCES and (
            OTHER_SOURCES[name] is None or keywords & (OTHER_SOURCES[name] or set())
        ):
            return None
        parses = parses or name == "parse_args"
        if name == "add_argument":
            if not all(isinstance(each, ast.Constant) for each in node.args):
                return None
            found |= {str(each.value) for each in node.args if isinstance(each, ast.Constant)}
    return found if parses and found else None


def syntax_of(script: Path) -> ast.Module | None:
    """The parsed text of a script; None where it can't be read."""
    try:
        return None if script.stat().st_size > MOST_BYTES else ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_known(flag: str, known: set[str]) -> bool:
    # argparse takes an unambiguous beginning of a long flag too.
    return flag in known or (flag.startswith("--") and any(each.startswith(flag) for each in known))
