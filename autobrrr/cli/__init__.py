"""The command line: one module a verb, imported only when its verb is used.

A verb's module has `prepare_parser(parser)` and `run(args) -> exit code`. Errors end here, on standard
error: a line with what happened and one with what to do; one line of JSON where `--json` was given.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from autobrrr import __version__
from autobrrr.cli import argument_parser
from autobrrr.cli.printed import NARRATOR
from autobrrr.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, AutobrrrError, UsageError
from autobrrr.readable import nearest, readable

VERBS = {
    "attach": "attach to a running job; show its state and its regime live",
    "diagnose": "attach, name what limits the step, detach",
    "tune": "try the matching remedies and keep what is proven faster",
    "prove": "referee a speed-up: same work, same results, faster by how much",
    "run": "start an unedited script with the agent preloaded and a recipe applied",
    "detach": "end a session: revert its remedies and remove everything from the job",
    "ls": "list the training jobs of this machine",
    "top": "show all jobs on one screen; Enter opens one",
    "doctor": "check what is in the way of attaching and measuring, and how to fix it",
    "explain": "say what a signal, a regime, a remedy or any other word on a screen means",
    "analyze": "explain where the GPU time of torch.profiler traces went",
    "roofline": "measure what this machine can do at best",
    "recipe": "list, show, copy, check and compare recipes",
    "report": "show what an earlier session found",
    "mcp": "offer the verbs to an agent, as tools of the Model Context Protocol",
    "demo": "run the whole loop on a small training job",
}
GROUPS = {
    "a running job": ("attach", "diagnose", "tune", "detach", "ls", "top", "doctor"),
    "a script": ("run", "tune", "prove", "recipe"),
    "traces, the machine, earlier sessions": ("analyze", "roofline", "report"),
    "for agents": ("mcp",),
    "to learn": ("explain", "demo"),
}
PACKAGES = ("torch", "numpy", "msgspec", "optuna", "textual", "psutil", "nvidia-ml-py")
EXAMPLES = {
    "autobrrr diagnose 4242": "what limits the job with pid 4242?",
    "autobrrr tune 4242 --recipe fast.toml": "try remedies on it; write down what is proven",
    "autobrrr run --recipe fast.toml -- python train.py": "start the next run with them",
    "autobrrr tune -- python train.py": "find faster flags for a script",
    "autobrrr prove --git main..HEAD -- python train.py": "is the branch really faster?",
}


def main(argv: Sequence[str] | None = None, ready: Callable[[], object] = lambda: None) -> int:
    """Run one command; returns the exit code.

    Args:
        ready: Called when all is imported and the command itself begins.
    """
    fill_closed()
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
        NARRATOR.fault("autobrrr: stopped")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): nothing left to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        return complain(AutobrrrError(f"the system refused: {error}", exit_code=EXIT_FAILED), as_json)
    finally:
        NARRATOR.clear()  # however it ends, no status is left on the screen


def fill_closed() -> None:
    """Where we were started with a standard stream closed, what is said there goes nowhere.

    Else the next file that is opened would have its number, and be written to as our output.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the lowest free number is this one's
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115 - until we end


def _run(words: Sequence[str], ready: Callable[[], object]) -> int:
    loud = list(takewhile(argument_parser.LOUDNESS.__contains__, words))
    words = [*words[len(loud) :][:1], *loud, *words[len(loud) + 1 :]]  # they may stand before the verb, too
    first = words[0] if words else "--help"
    if first in VERBS:
        what = VERBS[first]
        parser = argument_parser.Parser(prog=f"autobrrr {first}", description=f"{what[0].upper()}{what[1:]}.")
        module = argument_parser.fill(parser, first)
        args = parser.parse_args(words[1:])
        NARRATOR.loudness = args.loudness
        ready()
        return int(module.run(args))
    if not first.startswith("-"):
        near = nearest(first, VERBS)
        hint = f"did you mean autobrrr {near}?" if near else "autobrrr --help lists the verbs"
        raise UsageError(f"there is no verb {first!r}", hint)
    return _frame(words)


def _frame(words: Sequence[str]) -> int:
    """What is asked of the program itself, not of a verb."""
    parser = argument_parser.Parser(
        prog="autobrrr",
        usage="autobrrr VERB …",
        description="Find out why a running PyTorch job is slow, and make it faster while it runs.",
        epilog=_verbs_text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    argument_parser.add_frame(parser)
    args = parser.parse_args(words or ["--help"])
    if args.version:
        print(version_text())
    elif args.print_completion is not None:
        print(argument_parser.completion(args.print_completion, VERBS))
    return EXIT_DONE


def version_text() -> str:
    """What a bug report needs of this installation and machine; the program's own version first."""
    import platform  # not for --help
    from importlib import metadata

    import psutil

    from autobrrr.roofline.machine_identity import accelerators, read_machine

    found: dict[str, str] = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    here = ", ".join(f"{name} {found[name]}" for name in PACKAGES if name in found)
    missing = ", ".join(name for name in PACKAGES if name not in found)
    lines = [
        f"autobrrr {__version__} in {Path(__file__).resolve().parents[2]}",
        f"python   {platform.python_version()} ({sys.executable})",
        f"packages {here}" + (f"; not installed: {missing}" if missing else ""),
        f"system   {platform.platform()}",
        f"machine  {read_machine().title}, {psutil.virtual_memory().total / 2**30:.0f} GiB; "
        f"GPU: {', '.join(accelerators()) or 'none'}",
    ]
    return "\n".join(lines)


def _verbs_text() -> str:
    lines = []
    for title, verbs in GROUPS.items():
        lines += [f"{title}:", *(f"  {verb:<10}{VERBS[verb]}" for verb in verbs), ""]
    lines += ["examples:", *(f"  {command:<52}{what}" for command, what in EXAMPLES.items()), ""]
    return "\n".join([*lines, "autobrrr VERB --help shows the flags of a verb."])


def complain(error: AutobrrrError, as_json: bool) -> int:
    """Say it on standard error; returns the error's exit code."""
    if as_json:
        NARRATOR.clear()  # first: it takes away lines of the screen
        found = {"schema": 1, "error": error.message, "hint": error.hint, "exit_code": error.exit_code}
        print(json.dumps(found), file=sys.stderr)
    else:
        NARRATOR.fault(shown(error))
    return error.exit_code


def shown(error: AutobrrrError, who: str = "") -> str:
    """A line with what happened, and to whom of several; then one with what to do about it."""
    line = readable(f"autobrrr: error: {who}{': ' if who else ''}{error.message}")
    return line + "\n" + readable(f"hint: {error.hint}") if error.hint else line
