"""The command line: one module a verb, imported only when its verb is used.

A verb's module has `prepare_parser(parser)` and `run(args) -> exit code`. Errors end here, on standard
error: a line with what happened and one with what to do; one line of JSON where `--json` was given.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from autobrrr import __version__
from autobrrr.errors import EXIT_FAILED, EXIT_INTERRUPTED, AutobrrrError, UsageError
from autobrrr.readable import readable

VERBS = {
    "attach": "go into a running job, show its state and its regime live",
    "diagnose": "attach, name the bottleneck, leave",
    "tune": "try the matching cures on the running job; keep what is proven",
    "run": "start a script unedited, with the agent preloaded and a recipe applied",
    "detach": "end a session: undo, take everything off",
    "ls": "list training jobs on this machine",
    "top": "all jobs on one screen; go into one of them",
    "doctor": "can I attach and measure here? what mends it?",
    "explain": "what a figure or signal means",
    "analyze": "explain the CPU-GPU gaps in torch.profiler traces",
    "roofline": "what this machine could do, from first principles",
    "recipe": "list, show and check recipes",
    "report": "what a session of the past has found",
    "demo": "watch the whole loop on a small job of our own",
}


def main(argv: Sequence[str] | None = None, ready: Callable[[], object] = lambda: None) -> int:
    """Run one command; returns the exit code.

    Args:
        ready: Called when all is imported and the command itself begins.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # bars and names are no reason to fail on a plain terminal
            stream.reconfigure(errors="replace")
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in words
    try:
        return _run(words, ready)
    except AutobrrrError as error:
        return complain(error, as_json)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): nothing left to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        return complain(AutobrrrError(f"the system refused: {error}", exit_code=EXIT_FAILED), as_json)


class Parser(argparse.ArgumentParser):
    """Wrong words are an error like any other: said in two lines, or in one of JSON."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help shows what it takes")


def _run(words: Sequence[str], ready: Callable[[], object]) -> int:
    parser = Parser(
        prog="autobrrr",
        description="Finds out why a running PyTorch job is slow, and cures it while it runs.",
        epilog="\n".join(f"  {verb:<10}{what}" for verb, what in VERBS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"autobrrr {__version__}")
    parser.add_argument("verb", choices=list(VERBS), metavar="VERB", help="one of the verbs below")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args(words[:1] or ["--help"])

    module = importlib.import_module(f"autobrrr.cli.verbs.{args.verb}")
    verb_parser = Parser(prog=f"autobrrr {args.verb}", description=VERBS[args.verb])
    module.prepare_parser(verb_parser)
    args = verb_parser.parse_args(words[1:])
    ready()
    return int(module.run(args))


def complain(error: AutobrrrError, as_json: bool) -> int:
    """Say it on standard error; returns the error's exit code."""
    if as_json:
        line = json.dumps(
            {"schema": 1, "error": error.message, "hint": error.hint, "exit_code": error.exit_code}
        )
    else:
        line = shown(error)
    print(line, file=sys.stderr)
    return error.exit_code


def shown(error: AutobrrrError, who: str = "") -> str:
    """A line with what happened, and to whom of several; then one with what to do about it."""
    line = readable(f"autobrrr: error: {who}{': ' if who else ''}{error.message}")
    return line + "\n" + readable(f"hint: {error.hint}") if error.hint else line
