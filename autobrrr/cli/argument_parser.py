"""The parsers of the command line: wrong words end in an error that names the nearest right one.

In: verbs and their modules. Out: the parser of one verb, or of all together (completion, the reference).
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from autobrrr.cli.printed import Loudness
from autobrrr.errors import UsageError
from autobrrr.readable import nearest

LOUDNESS = ("-q", "--quiet", "-v", "--verbose")
FILES = ("FILE", "TRACE", "DIR", "NAME|FILE")  # metavars that a shell completes to files


class Parser(argparse.ArgumentParser):
    """Wrong words are an error like any other: said in two lines, or in one of JSON."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help shows what it takes")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """As argparse does it, but a flag that is not there names the one that is."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = nearest(left[0].split("=")[0], flags) if left[0].startswith("-") else None
            hint = f"did you mean {near}?" if near else f"{self.prog} --help shows what it takes"
            raise UsageError(f"unknown argument: {left[0]}", hint)
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(each) for each in action.choices]
            near = nearest(str(value), names)
            what = action.metavar or "/".join(action.option_strings) or action.dest
            hint = f"did you mean {near}?" if near else f"one of {', '.join(names)}"
            raise UsageError(f"{what} {value!r} does not exist", hint)


def fill(parser: argparse.ArgumentParser, verb: str) -> Any:
    """Add a verb's arguments; returns its module."""
    module = importlib.import_module(f"autobrrr.cli.verbs.{verb}")
    module.prepare_parser(parser)
    _add_loudness(parser)
    parser.set_defaults(loudness=Loudness.NORMAL)
    return module


def _add_loudness(parser: argparse.ArgumentParser) -> None:
    """To the verb and its actions, so that it may stand behind either."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _add_loudness(below)
    loudness = parser.add_mutually_exclusive_group()
    common: Any = {"dest": "loudness", "action": "store_const", "default": argparse.SUPPRESS}
    all_of_it = "say every stage in a line of its own, and show all details"
    loudness.add_argument(*LOUDNESS[:2], const=Loudness.QUIET, help="print the result only", **common)
    loudness.add_argument(*LOUDNESS[2:], const=Loudness.VERBOSE, help=all_of_it, **common)


def add_frame(parser: argparse.ArgumentParser) -> None:
    """The flags of the program itself."""
    parser.add_argument("--version", action="store_true", help="print what a bug report needs")
    parser.add_argument(
        "--print-completion", metavar="SHELL", help="print a completion script: bash, zsh, fish or tcsh"
    )


def whole_parser(verbs: Mapping[str, str]) -> argparse.ArgumentParser:
    """All verbs with all their arguments. Imports every verb: never for `--help`.

    Args:
        verbs: Each with what it does.
    """
    parser = Parser(prog="autobrrr")
    add_frame(parser)
    added = parser.add_subparsers(metavar="VERB")
    for verb, what in verbs.items():
        fill(added.add_parser(verb, help=what, description=what), verb)
    return parser


def completion(shell: str, verbs: Mapping[str, str]) -> str:
    """A script that completes verbs, flags and files.

    Raises:
        UsageError: no script can be made for that shell.
    """
    import shtab

    if shell not in shtab.SUPPORTED_SHELLS:
        raise UsageError(
            f"no completion for {shell!r}", f"shells that are known: {', '.join(shtab.SUPPORTED_SHELLS)}"
        )
    parser = whole_parser(verbs)
    _mark_files(parser)
    return str(shtab.complete(parser, shell=shell))


def _mark_files(parser: argparse.ArgumentParser) -> None:
    import shtab

    for action in parser._actions:
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _mark_files(each)
