"""Arguments that verbs share: durations (`300ms`, `1.5m`), shares (`2%`), which job, and how far to go."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autobrrr.cli.printed import narrate
from autobrrr.errors import CannotAttach, TargetGone, UsageError
from autobrrr.machine.kernel_text import number
from autobrrr.readable import readable
from autobrrr.sidecar.process.session_options import Probing, SessionOptions

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%", re.ASCII)
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)


def duration_s(text: str) -> float:
    """Seconds, for `type=` of an argument.

    Raises:
        argparse.ArgumentTypeError: it is none, or zero.
    """
    found = _WRITTEN.fullmatch(text.strip())
    seconds = float(found.group(1)) * _SECONDS[found.group(2)] if found else 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 300ms, 10s, 5m or 2h")
    return seconds


def share_of_work(text: str) -> float:
    """A share from 0 to 1, for `type=` of an argument.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    found = _PERCENT.fullmatch(text.strip())
    if found is None or float(found.group(1)) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; write 2%")
    return float(found.group(1)) / 100


# What a flag takes, by the word that stands for it in the help.
TYPES: dict[str, Callable[[str], object]] = {"D": duration_s, "P%": share_of_work, "N": int}
TYPES |= dict.fromkeys(("FILE", "DIR"), Path)


def flag(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, words: str, help: str, **more: Any
) -> None:
    """Add a flag: `--name` is a switch, `--name WORD` takes a value of the type that the word stands for.

    The name of a duration in the program ends in `_s`.
    """
    name, _, word = words.partition(" ")
    if not word:
        parser.add_argument(name, action="store_true", help=help, **more)
        return
    dest = name[2:].replace("-", "_") + ("_s" if word == "D" else "")
    parser.add_argument(name, help=help, **{"dest": dest, "metavar": word, "type": TYPES.get(word), **more})


def words_of(name: str, command: str) -> list[str]:
    """The words of a command that the flag of this name gives in quotes.

    Raises:
        UsageError: a quote is open.
    """
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{name}: not a command: {error}") from None


@contextmanager
def last_words_said() -> Iterator[None]:
    """Say the last lines of a command that could not be measured, before the error is."""
    from autobrrr.relaunch.study.command_refusals import Unmeasurable  # not for --help

    try:
        yield
    except Unmeasurable as refusal:
        for line in refusal.ending.lines:
            narrate(f"  | {line}")
        raise


def add_target(parser: argparse.ArgumentParser) -> None:
    """The job, and whether its batch size may be probed."""
    parser.add_argument(
        "pid",
        type=process_number,
        nargs="*",
        metavar="PID",
        help="the training process (default: the only job)",
    )
    probe = parser.add_mutually_exclusive_group()
    flag(probe, "--probe", "run the batch probe, also in a session that was started without it")
    flag(probe, "--no-probe", "do not run the batch probe")


def process_number(text: str) -> int:
    """For `type=` of an argument.

    Raises:
        argparse.ArgumentTypeError: it is no number.
    """
    found = number(text)
    if found is None or found < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a process number; autobrrr ls lists the jobs")
    return found


def one_pid(args: argparse.Namespace) -> int:
    """The pid; of the only job where none is given.

    Raises:
        CannotAttach: several were given.
        AutobrrrError: none was given, and there is no job, or more than one.
    """
    if len(args.pid) > 1:
        named = ", ".join(str(pid) for pid in args.pid)
        raise CannotAttach(f"autobrrr attaches to one job at a time, not to {named}", "name one of them")
    if not args.pid:
        args.pid = [_only_job()]
    pid: int = args.pid[0]
    return pid


def _only_job() -> int:
    from autobrrr.cli.verbs.ls import jobs

    found = jobs()
    if not found:
        raise TargetGone(
            "no PID is given, and no training job runs here", "start one, or see autobrrr doctor"
        )
    listed = [f"{each.pid} ({readable(each.script or '?')})" for each in found]
    if len(found) > 1:
        raise UsageError(f"no PID is given, and {len(found)} jobs run here: {', '.join(listed)}", "name one")
    narrate(f"the only job here is {listed[0]}")
    return found[0].pid


def session_options(args: argparse.Namespace) -> SessionOptions:
    """What the arguments ask of a session.

    Raises:
        UsageError: they contradict each other.
    """
    readonly = bool(getattr(args, "readonly", False))
    outside = bool(getattr(args, "outside", False))
    if args.probe and (readonly or outside):
        raise UsageError(
            "--probe replays a step; --readonly and --outside do not allow that", "drop one of the two flags"
        )
    return SessionOptions(
        readonly=readonly,
        outside=outside,
        probing=wanted_probing(args),
        metrics=getattr(args, "metrics", None),
    )


def wanted_probing(args: argparse.Namespace) -> Probing:
    """What `--probe` and `--no-probe` say."""
    return "off" if args.no_probe else "on"
