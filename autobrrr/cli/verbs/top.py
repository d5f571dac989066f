"""`autobrrr top`: all training jobs of this machine on one screen; Enter goes into one of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from autobrrr.cli.terminal_screen import SHIPPED, live_source, past_session, wants_screen
from autobrrr.cli.verb_arguments import flag
from autobrrr.client.session_client import Client, join, open_session
from autobrrr.errors import EXIT_DONE, UsageError
from autobrrr.records.session_requests import OwnSession
from autobrrr.sidecar.process.session_options import SessionOptions


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--readonly", "attach without changing anything in the jobs")
    flag(parser, "--demo", "play a recorded session")


def run(args: argparse.Namespace) -> int:
    if not wants_screen():
        raise UsageError("top needs a terminal", "autobrrr ls lists the jobs as text")
    from autobrrr_tui.app import show, show_top

    if args.demo:
        show(past_session(SHIPPED, speed=1.0))
        return EXIT_DONE

    from autobrrr.cli.verbs.ls import jobs

    def opened(pid: int, on_wait: Callable[[str], None]) -> Client:
        client = join(pid) or open_session(pid, SessionOptions(readonly=args.readonly), on_wait)
        client.ask(OwnSession(False))  # it goes on when the screen is left, whoever has started it
        return client

    show_top(jobs, lambda pid: live_source(pid, partial(opened, pid), readonly=args.readonly))
    return EXIT_DONE
