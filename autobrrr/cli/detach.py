"""`autobrrr detach`: end the session of a job; undo what it switched, take everything off."""

from __future__ import annotations

import argparse

from autobrrr.cli.target import narrate
from autobrrr.client import join
from autobrrr.errors import EXIT_DONE, AutobrrrError


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=int, metavar="PID", help="the training process")
    parser.add_argument("--keep", action="store_true", help="leave the remedies on that were kept")


def run(args: argparse.Namespace) -> int:
    client = join(args.pid)
    if client is None:
        raise AutobrrrError(f"process {args.pid} has no session", "autobrrr ls lists those that have one")
    with client:
        levers = client.snapshot().levers
        left = client.detach(keep=args.keep)
    if left.left:
        names = ", ".join(left.left)
        raise AutobrrrError(
            f"could not be taken off process {args.pid} yet: {names}",
            f"{left.why}; it comes off at the job's next step (kill -CONT {args.pid} if it is stopped)",
        )
    if left.kind == "job ended":
        narrate(f"process {args.pid} has ended, and its session with it")
    elif levers:
        narrate(f"detached; {'still on' if args.keep else 'undone'}: {', '.join(levers)}")
    else:
        narrate("detached; nothing was left on")
    return EXIT_DONE
