"""Which job, and how far to go: arguments and words that `attach`, `diagnose` and `tune` share."""

from __future__ import annotations

import argparse
import sys

from autobrrr.errors import CannotAttach, UsageError
from autobrrr.readable import readable
from autobrrr.sidecar.process.session_options import Probing, SessionOptions


def add_target(parser: argparse.ArgumentParser) -> None:
    """The job, and whether its batch size may be probed."""
    parser.add_argument("pid", type=int, nargs="+", metavar="PID", help="the training process")
    add_probing(parser)


def add_probing(parser: argparse.ArgumentParser) -> None:
    """`--probe` and `--no-probe`."""
    probe = parser.add_mutually_exclusive_group()
    probe.add_argument(
        "--probe",
        action="store_true",
        help="probe the batch size, also of a model whose code prints or writes",
    )
    probe.add_argument("--no-probe", action="store_true", help="no batch probe")


def one_pid(args: argparse.Namespace) -> int:
    """The pid.

    Raises:
        CannotAttach: several were given.
    """
    if len(args.pid) > 1:
        named = ", ".join(str(pid) for pid in args.pid)
        raise CannotAttach(f"one job at a time can be attached, not {named}", "attach to one of them")
    pid: int = args.pid[0]
    return pid


def session_options(args: argparse.Namespace) -> SessionOptions:
    """What the arguments ask of a session.

    Raises:
        UsageError: they contradict each other.
    """
    readonly = bool(getattr(args, "readonly", False))
    outside = bool(getattr(args, "outside", False))
    probing = wanted_probing(args)
    if probing == "overridden" and (readonly or outside):
        raise UsageError(
            "--probe replays a step, which --readonly and --outside rule out", "give one of them"
        )
    return SessionOptions(readonly=readonly, outside=outside, probing=probing)


def wanted_probing(args: argparse.Namespace) -> Probing:
    """What `--probe` and `--no-probe` say."""
    if args.no_probe:
        return "off"
    return "overridden" if args.probe else "on"


def narrate(text: str) -> None:
    """A line that is no data: to standard error, and one line whatever it holds."""
    print(f"autobrrr: {readable(text)}", file=sys.stderr, flush=True)
