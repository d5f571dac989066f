"""Flags of a script: where they stand in a command, and which ones a script certainly does not know.

In: the words of a command, the flags of a recipe. Out: the command with them. The script itself is only read.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from autobrrr.machine.procfs import is_python, python_run

MOST_BYTES = 1 << 20
# They start a script or a module, with flags of their own before it.
LAUNCHERS = frozenset(
    ("torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch")
) | {"accelerate.commands.launch", "accelerate.commands.accelerate_cli"}
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=")
_FLAG = re.compile(r"-(?![\d.])")  # a negative number is a value
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

    They follow a Python file, a module, or Python's own code, started by a Python or a launcher, whatever
    stands before. No other program is given a flag of a recipe, which could name code.
    """
    words, at = list(command), _starts(command)
    begins = None if at is None else _behind_script(words, at)
    return None if begins is None or _starts(words[begins:], scripts=False) is not None else begins


def _starts(command: Sequence[str], *, scripts: bool = True) -> int | None:
    """Where the Python, the launcher or the script stands that a command becomes."""
    for at, word in enumerate(command):
        if is_python(word) or os.path.basename(word) in LAUNCHERS:
            return at
    return 0 if scripts and command and command[0].endswith(".py") else None


def _behind_script(words: Sequence[str], at: int) -> int | None:
    """Behind what a Python runs, or the script or module that a launcher, or a module of Python's, starts."""
    begins = at + 1
    if is_python(words[at]):
        ran = python_run(words[at:])
        if ran is None:
            return None
        begins = at + ran.ends
        if os.path.basename(ran.target) not in LAUNCHERS and not (
            ran.how == "-m" and _is_of_python(ran.target)
        ):
            return begins
    elif words[at].endswith(".py"):
        return begins
    files = [i for i in range(begins, len(words)) if words[i].endswith(".py")]
    sure = [i + 1 for i in files if not words[i - 1].startswith("-") or "=" in words[i - 1]]
    names = [i for i in range(begins, len(words)) if words[i].partition("=")[0] in ("-m", "--module")]
    modules = [i + (1 if "=" in words[i] else 2) for i in names]
    own = next((each for each in (*sure, *modules, *(i + 1 for i in files)) if each <= len(words)), None)
    return None if own is None or _is_of_python(words[own - 1].rpartition("=")[2]) else own


def _is_of_python(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def program_of(command: Sequence[str]) -> str:
    """What a command runs, behind plain wrappers."""
    return command[_starts(command) or 0]


def overruled(command: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """Variables that `env` before the program sets or takes away, whatever the command starts with."""
    before = list(command[: _starts(command) or 0])
    taken = {found[1] for word in before if (found := _ASSIGNED.match(word))}
    clears = "env" in before and not {"-", "-i", "--ignore-environment"}.isdisjoint(before)
    return {name: "the command sets it itself" for name in names if clears or name in taken}


def unreached(command: Sequence[str]) -> str | None:
    """Why no agent comes into a Python that the command starts: PYTHONPATH brings it; None where it does."""
    at = _starts(command)
    ran = python_run(command[at:]) if at is not None and is_python(command[at]) else None
    if ran is not None and ran.is_isolated:
        return "python -E and -I start without what PYTHONPATH names, and so without an agent"
    if overruled(command, ["PYTHONPATH"]):
        return "env takes away what PYTHONPATH names, and so the agent"
    return None


def with_flags(command: Sequence[str], flags: Mapping[str, object]) -> list[str]:
    """The command with each flag's value replaced where the flag stands, else behind its own words.

    Only the program's own words are looked at, see `own_words`; where those can't be told, the command stays
    as it is. True is the flag alone; False and None take it away. A new flag is written as the command writes
    its own: nanoGPT reads `--flag=value` only. Where a flag stands more than once, or with several words
    behind it, the new one follows: the last one counts.
    """
    words = list(command)
    first = own_words(words)
    if first is None:
        return words
    joins = _joins_values(words[first:])
    for flag, value in flags.items():
        until, places = _end(words, first), _places(words, flag, first)
        at = places[0] if len(places) == 1 else None
        values = [] if at is None else _behind(words, at, until)
        alone = isinstance(value, bool) or value is None
        if value is None or value is False:
            for place in reversed(places if _why_kept(words, flag, first) is None else []):
                del words[place]
        elif alone and places:
            continue
        elif at is not None and words[at] != flag:
            words[at] = f"{flag}={value}"
        elif at is not None and len(values) <= 1:
            words[at + 1 : at + 1 + len(values)] = [str(value)]
        else:
            joined = joins and flag.startswith("--")
            words[until:until] = [flag] if alone else [f"{flag}={value}"] if joined else [flag, str(value)]
    return words


def misplaced(command: Sequence[str], flags: Mapping[str, object]) -> dict[str, str]:
    """Flags that can't be given to the script of a command, and why."""
    words, first = list(command), own_words(command)
    if first is None:
        return dict.fromkeys(flags, NO_PLACE)
    script = script_of(command)
    found = dict.fromkeys(unknown_flags(script, flags), f"{script} has no such flag")
    for flag, value in flags.items():
        why = _why_kept(words, flag, first) if value is None or value is False else None
        if value is True and any(words[at] != flag for at in _places(words, flag, first)):
            why = "it stands there with a value"
        if why is not None:
            found.setdefault(flag, why)
    return found


def _places(words: Sequence[str], flag: str, first: int) -> list[int]:
    """Where a flag stands among the words from `first` on."""
    until = _end(words, first)
    return [at for at in range(first, until) if words[at] == flag or words[at].startswith(f"{flag}=")]


def _end(words: Sequence[str], first: int) -> int:
    """Where flags end: what stands behind `--` is none."""
    return next((at for at in range(first, len(words)) if words[at] == "--"), len(words))


def _behind(words: Sequence[str], at: int, until: int) -> list[str]:
    """The words up to the next flag: values, or arguments that stand for themselves."""
    return list(itertools.takewhile(lambda word: not _FLAG.match(word), words[at + 1 : until]))


def _why_kept(words: Sequence[str], flag: str, first: int) -> str | None:
    """Why a flag can't be taken away, if so."""
    until = _end(words, first)
    for at in _places(words, flag, first):
        behind = _behind(words, at, until) if words[at] == flag else []
        if behind:
            return f"whether {behind[0]} goes with it can't be told"
    return None


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
            names = {str(each.value) for each in node.args if isinstance(each, ast.Constant)}
            found |= names
            if any("BooleanOptionalAction" in ast.dump(each.value) for each in node.keywords):
                found |= {f"--no-{name[2:]}" for name in names if name.startswith("--")}
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
