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
# They run what their last words say, with flags of their own before it.
LAUNCHERS = frozenset(
    ("torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch")
) | {"accelerate.commands.launch", "accelerate.commands.accelerate_cli"}


# They become the command behind their own words.
WRAPPERS = frozenset(
    ("env", "nice", "ionice", "chrt", "taskset", "numactl", "timeout", "stdbuf", "setsid", "nohup")
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=")
_UNSET, _CLEARS = re.compile(r"(?:--unset=|-[v0]*u)(.+)"), re.compile(r"-$|-[v0]*i|--ignore-environment$")
_FLAG = re.compile(r"-(?![\d.])")  # a negative number is a value
_RUNS_NEXT = re.compile(r"-[A-Za-z]*[mc]$|--module(=|$)")
_NO_PYTHON = re.compile(r"--no[-_](p|$)")  # of a launcher: what it starts is some program
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

    They follow Python's own script, module or code, and what a launcher starts; plain wrappers may stand
    before. Every other program reads its words in ways of its own, and its flags may name modules, code and
    files: so do modules that come with Python, and modules that have a Python file behind them.
    """
    words = list(command)
    at = behind_wrappers(words)
    if at is None:
        return None
    if os.path.basename(words[at]) in LAUNCHERS:
        return _after_launcher(words, at + 1)
    if words[at].endswith(".py"):
        return None if _runs_another(words[at + 1 :]) else at + 1
    ran = python_run(words[at:]) if is_python(words[at]) else None
    if ran is None or (ran.how == "-m" and _is_of_python(ran.target)):
        return None
    begins = at + ran.ends
    if ran.how != "-c" and os.path.basename(ran.target) in LAUNCHERS:
        return _after_launcher(words, begins)
    runner = ran.how != "-c" and not ran.target.endswith(".py") and script_of(words[begins:]) is not None
    own = set() if ran.how else known_flags(Path(ran.target))  # `-m` and `-c` may be the script's
    behind = [word for word in words[begins:] if word not in (own or ())]
    return None if runner or _runs_another(behind) else begins


def behind_wrappers(words: Sequence[str]) -> int | None:
    """Where the program stands that plain wrappers become; None where it is no Python, script or launcher."""
    if words and os.path.basename(words[0]) not in WRAPPERS:
        return 0
    return next((at for at, word in enumerate(words) if _starts_training(word)), None)


def _starts_training(word: str) -> bool:
    script = word.endswith(".py") and _ASSIGNED.match(word) is None
    return script or is_python(word) or os.path.basename(word) in LAUNCHERS


def program_of(command: Sequence[str]) -> str:
    """What a command runs, behind plain wrappers."""
    return command[behind_wrappers(command) or 0]


def overruled(command: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """Variables that `env` before the program sets or takes away, whatever the command starts with."""
    words = list(command[: behind_wrappers(command) or 0])
    own = words[next((at for at, word in enumerate(words) if os.path.basename(word) == "env"), len(words)) :]
    taken = {found[1] for word in own for one in (_ASSIGNED, _UNSET) if (found := one.match(word))}
    taken |= {word for before, word in itertools.pairwise(own) if before in ("-u", "--unset")}
    clears = any(_CLEARS.match(word) for word in own)
    return {name: "the command sets it itself" for name in names if clears or name in taken}


def unreached(command: Sequence[str]) -> str | None:
    """Why no agent comes into a Python that the command starts: PYTHONPATH brings it; None where it does."""
    if ignores_environment(command):
        return "python -E and -I start without what PYTHONPATH names, and so without an agent"
    if overruled(command, ["PYTHONPATH"]):
        return "env takes away what PYTHONPATH names, and so the agent"
    return None


def ignores_environment(command: Sequence[str]) -> bool:
    """Whether a Python command line says, by -E or -I, that nothing comes from the environment."""
    at = behind_wrappers(command)
    ran = python_run(command[at:]) if at is not None and is_python(command[at]) else None
    return ran is not None and ran.is_isolated


def _after_launcher(words: Sequence[str], begins: int) -> int | None:
    """Behind the script or the module that a launcher starts; None where it can't be told."""
    files = [at for at in range(begins, len(words)) if words[at].endswith(".py")]
    sure = [at for at in files if not words[at - 1].startswith("-") or "=" in words[at - 1]]
    if files:
        own = (sure or files)[0] + 1
        before = words[begins : own - 1]
        elsewhere = _runs_next(before) or any(_NO_PYTHON.match(word) for word in before)
        return None if elsewhere or _runs_another(words[own:]) else own
    modules = [at for at in range(begins, len(words)) if words[at].partition("=")[0] in ("-m", "--module")]
    if len(modules) != 1:
        return None
    own = modules[0] + (1 if "=" in words[modules[0]] else 2)
    if own > len(words) or _is_of_python(words[own - 1].rpartition("=")[2]):
        return None
    return None if _runs_another(words[own:]) else own


def _is_of_python(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _runs_next(words: Sequence[str]) -> bool:
    """Whether one of them names a module or code to run."""
    return any(_RUNS_NEXT.match(word) for word in words)


def _runs_another(words: Sequence[str]) -> bool:
    """Whether one of them could be another program, or name what one runs."""
    return _runs_next(words) or any(is_python(word) or os.path.basename(word) in LAUNCHERS for word in words)


def with_flags(command: Sequence[str], flags: Mapping[str, object]) -> list[str]:
    """The command with each flag's value replaced where the flag stands, else behind its own words.

    Only the program's own words are looked at, see `own_words`; where those can't be told, the command stays
    as it is. True is the flag alone; False and None take it away. A new flag is written as the command writes
    its own: nanoGPT reads `--flag=value` only. Where a flag stands more than once, or with several words
    behind it, the new one follows: the last one counts.
    """
    first = own_words(command)
    if first is None:
        return list(command)
    end = _end(command, first)
    groups = _by_flag(command[first:end])
    long = [group for group in groups[1:] if group[0].startswith("--")]
    apart = any("=" not in group[0] and len(group) > 1 for group in long)
    joins = not apart and any("=" in group[0] for group in long)
    for flag, value in flags.items():
        stand = _standing(groups, flag)
        if value is None or value is False:
            if _why_kept(stand, flag) is None:
                groups = [group for group in groups if group not in stand]
        elif value is True:
            groups += [] if stand else [[flag]]
        elif len(stand) == 1 and stand[0][0] != flag:
            stand[0][0] = f"{flag}={value}"
        elif len(stand) == 1 and len(stand[0]) <= 2:
            stand[0][1:] = [str(value)]
        else:
            groups.append([f"{flag}={value}"] if joins and flag.startswith("--") else [flag, str(value)])
    return [*command[:first], *itertools.chain.from_iterable(groups), *command[end:]]


def misplaced(command: Sequence[str], flags: Mapping[str, object]) -> dict[str, str]:
    """Flags that can't be given to the script of a command, and why."""
    first = own_words(command)
    if first is None:
        return dict.fromkeys(flags, NO_PLACE)
    script = script_of(command)
    found = dict.fromkeys(unknown_flags(script, flags), f"{script} has no such flag")
    groups = _by_flag(command[first : _end(command, first)])
    for flag, value in flags.items():
        stand = _standing(groups, flag)
        why = _why_kept(stand, flag) if value is None or value is False else None
        if value is True and any(group[0] != flag for group in stand):
            why = "it stands there with a value"
        if why is not None:
            found.setdefault(flag, why)
    return found


def _end(words: Sequence[str], first: int) -> int:
    """Where flags end: what stands behind `--` is none."""
    return next((at for at in range(first, len(words)) if words[at] == "--"), len(words))


def _by_flag(words: Sequence[str]) -> list[list[str]]:
    """What stands before all flags, then each flag with what stands behind it: its values, or arguments.

    Nothing behind `--flag=value` goes with it.
    """
    groups: list[list[str]] = [[]]
    for word in words:
        if _FLAG.match(word) or any("=" in head for head in groups[-1][:1]):
            groups.append([])
        groups[-1].append(word)
    return groups


def _standing(groups: Sequence[list[str]], flag: str) -> list[list[str]]:
    """The groups of one flag."""
    return [group for group in groups[1:] if group[0] == flag or group[0].startswith(f"{flag}=")]


def _why_kept(stand: Sequence[list[str]], flag: str) -> str | None:
    """Why a flag can't be taken away, if so."""
    behind = next((group[1] for group in stand if group[0] == flag and len(group) > 1), None)
    return None if behind is None else f"whether {behind} goes with it can't be told"


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
