"""`autobrrr report SESSION`: what a past session has found, as text, as a page or in the terminal UI."""

from __future__ import annotations

import argparse
from pathlib import Path

from autobrrr import paths
from autobrrr.cli.terminal_screen import past_session, session_file, wants_screen
from autobrrr.errors import EXIT_DONE, UsageError
from autobrrr.report.text.session_text import past_session as past
from autobrrr.report.text.session_text import report_text
from autobrrr.report.text.sessions_list import latest_sessions, sessions_table


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session",
        nargs="?",
        metavar="SESSION",
        help="a session log, its name, a pid (its latest session), last, or demo (default: list sessions)",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page with all trials and their intervals"
    )
    parser.add_argument("--tui", action="store_true", help="open it in the terminal UI")


def run(args: argparse.Namespace) -> int:
    if args.session is None:
        if args.tui or args.html is not None:
            raise UsageError("no session is given", "autobrrr report lists them")
        print(sessions_table(latest_sessions(paths.state_dir())))
        return EXIT_DONE
    if args.tui:
        if not wants_screen():
            raise UsageError("--tui needs a terminal", "autobrrr report SESSION prints it")
        from autobrrr_tui.app import show

        show(past_session(args.session))
        return EXIT_DONE
    if args.html is not None:
        from autobrrr.report.html.session_html import page

        try:
            args.html.write_text(page(past(session_file(args.session))), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{args.html}: {error.strerror}") from None
        print(args.html)
        return EXIT_DONE
    print(report_text(session_file(args.session)))
    return EXIT_DONE
