"""`autobrrr report SESSION`: what a past session has found, as text, JSON, a page or in the terminal UI."""

from __future__ import annotations

import argparse
import os
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from autobrrr import paths
from autobrrr.attach import door
from autobrrr.cli.printed import NARRATOR, Loudness, check_places, columns, deliver, narrate, show, write_file
from autobrrr.cli.terminal_screen import past_session, session_file, wants_screen
from autobrrr.cli.verb_arguments import flag
from autobrrr.client.session_client import join
from autobrrr.errors import EXIT_DONE, AutobrrrError, UsageError
from autobrrr.machine.procfs import TICK_NS
from autobrrr.records import to_json
from autobrrr.records.session_requests import ReadLog, TakeSnapshot
from autobrrr.report.page_text import page_text
from autobrrr.report.pages.session_page import session_page
from autobrrr.report.past_session import PastSession, latest_sessions, names_something, sessions_table
from autobrrr.report.past_session import past_session as past
from autobrrr.sidecar.sockets.session_socket import find_target


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session",
        nargs="?",
        metavar="SESSION",
        help="a session log, its name, a pid (its latest session), last, or demo (default: list sessions)",
    )
    parser.add_argument("--diff", nargs=2, metavar=("A", "B"), help="compare two sessions: A before, B after")
    flag(parser, "--json", "print one JSON object")
    flag(parser, "--html FILE", "write a page: the steps over time, each trial, own cost")
    flag(parser, "--tui", "open it in the terminal UI")


def run(args: argparse.Namespace) -> int:
    if args.session is not None and args.session.isdecimal():
        door.go_through(int(args.session), narrate)  # of a job that runs: who has its sessions
    if args.diff is not None:
        if args.session is not None or args.tui:
            raise UsageError("--diff names both sessions", "autobrrr report --diff A B")
        return _compare(args)
    if args.session is None:
        if args.tui or args.json or args.html is not None:
            raise UsageError("no session is given", "autobrrr report lists them")
        listed = latest_sessions(paths.state_dir())
        show(sessions_table(listed, columns()))
        NARRATOR.next_step(
            "autobrrr report SESSION   (last is the newest)" if listed else "autobrrr report demo"
        )
        return EXIT_DONE
    if args.tui:
        if not wants_screen():
            raise UsageError("--tui needs a terminal", "autobrrr report SESSION prints it")
        from autobrrr_tui.app import show as show_screen

        show_screen(past_session(args.session))
        return EXIT_DONE
    file = session_file(args.session)
    found = session_now(file)
    if args.html is not None:
        from autobrrr.report.html.page_template import page_html

        write_file(args.html, page_html(session_page(found)), failure=UsageError)
    if args.json:
        print(to_json(found.data))
    elif args.html is not None:
        print(args.html)
    else:
        page, whole = session_page(found), NARRATOR.loudness is Loudness.VERBOSE
        show(f"{page_text(page, columns(), () if whole else page.brief)}\n\nlog: {file}")
        more = "--html session.html   (or" if whole else "-v   (all of it; --html FILE: as a page;"
        NARRATOR.next_step(f"autobrrr report {args.session} {more} --tui: on the screen)")
    return EXIT_DONE


def session_now(path: Path) -> PastSession:
    """Read a log; if its session still runs, ask it, since logs lag behind. Raises UsageError."""
    found = past(path)
    data, pid = found.data, found.data.snapshot.pid
    with suppress(AutobrrrError, OSError):  # the job is gone, or its session is just going
        booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        if booted_s + find_target(pid).start_ticks * TICK_NS / 1e9 > (data.timeline.began_unix_s or 0.0):
            return found  # by now this number is another process's
        found = replace(found, data=msgspec.structs.replace(data, runs=True))
        with (None if data.ended else join(pid)) or nullcontext() as client:
            if client is not None and os.path.samefile(client.ask(ReadLog(0)).path, path):
                now = client.ask(TakeSnapshot())
                data = msgspec.structs.replace(data, snapshot=now, runs=True, alive=True)
                judged = now if names_something(now) or found.judged is None else found.judged
                found = PastSession(data=data, judged=judged)
    return found


def _compare(args: argparse.Namespace) -> int:
    from autobrrr.report.pages.side_by_side import compare_sessions, comparison_page

    check_places(args.html)
    found = compare_sessions(*(session_now(session_file(each)).data for each in args.diff))
    deliver(args, found, comparison_page(found))
    return EXIT_DONE
