"""`autobrrr attach`: start or join the session of a job, and show it live.

The session outlives this command; `autobrrr detach` ends it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec

from autobrrr.attach import door
from autobrrr.cli.durations import duration_s
from autobrrr.cli.launcher_ranks import ranks_of, say_failures, say_of
from autobrrr.cli.narration import NARRATOR, narrate
from autobrrr.cli.terminal_screen import serve, show_session, wants_screen
from autobrrr.cli.verb_arguments import add_target, one_pid, session_options
from autobrrr.client.all_ranks import together
from autobrrr.client.each_rank import RanksOutcome, entered, for_each
from autobrrr.client.joined_session import open_session
from autobrrr.client.ranks_at_once import RanksAtOnce, compare_sessions
from autobrrr.client.session_client import Client, left_behind
from autobrrr.errors import EXIT_DONE, EXIT_INTERRUPTED, AutobrrrError, TargetGone, UsageError
from autobrrr.machine import procfs
from autobrrr.records import Diagnosis, to_json
from autobrrr.records.wire_answers import RemedyChoice, SessionEnding
from autobrrr.report.text.verdict_text import live_line
from autobrrr.sidecar.process.session_options import SessionOptions

JSON_EVERY_S = 0.5
MEETING_S, MEETING_EVERY_S = 10.0, 0.5
LINE_EVERY_S = 1.0
WEB_PORT = 8000


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--for", dest="for_s", type=duration_s, metavar="D", help="watch for this long, then leave"
    )
    parser.add_argument(
        "--readonly",
        action="store_true",
        help="change nothing in the job: no traced steps, no batch probe, no remedies",
    )
    parser.add_argument(
        "--outside", action="store_true", help="put no code into the job: show only what the machine shows"
    )
    parser.add_argument("--recipe", metavar="FILE", help="apply the live remedies of a recipe")
    parser.add_argument("--foreground", action="store_true", help="end the session with this command")
    parser.add_argument(
        "--metrics",
        metavar="PORT",
        help="serve figures to Prometheus while the session lasts: on 127.0.0.1, or HOST:PORT",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--plain", action="store_true", help="print live lines, also on a terminal")
    shown.add_argument("--json", action="store_true", help="print one JSON object per snapshot")
    shown.add_argument(
        "--web",
        nargs="?",
        type=int,
        const=WEB_PORT,
        metavar="PORT",
        help=f"show the screen in a browser, on localhost only (default port {WEB_PORT})",
    )


def run(args: argparse.Namespace) -> int:
    pid = one_pid(args)
    options = session_options(args)
    if args.recipe and (options.readonly or options.outside):
        raise UsageError(
            "--recipe applies remedies; --readonly and --outside do not allow that",
            "drop one of the two flags",
        )
    if args.web is not None and args.foreground:
        raise UsageError("--foreground ends the session with this command, and --web shows it in others")
    if args.web is not None:
        return serve(_words_of(args), args.web)
    door.go_through(pid, narrate)
    remedies = live_remedies(args.recipe, pid) if args.recipe else []
    on_screen = wants_screen() and not (args.plain or args.json or args.foreground)
    launched = ranks_of(pid)
    for flag, given in (("--metrics takes", args.metrics), ("--recipe applies remedies to", args.recipe)):
        if launched and given:
            raise UsageError(
                f"{flag} one process, and a launcher has several",
                f"attach to one of them, for example {launched[0]}",
            )
    if launched and not on_screen:
        return _all_ranks(args, options, launched)
    if on_screen:
        outcome = entered(launched, options, say_of)
        if launched:
            say_failures(outcome)
        for client in outcome.done.values():
            client.close()  # the screen finds them among the sessions
        code = _on_screen(next(iter(outcome.done), pid), options, remedies, args.for_s)
        if launched:
            NARRATOR.next_step(f"autobrrr detach {pid}   (ends the sessions of all ranks)")
        return outcome.exit_code(code)
    show: Callable[[Diagnosis], None] = _show_json if args.json else _show_line
    with open_session(pid, options, narrate, foreground=args.foreground) as client:
        try:
            if client.facts.metrics is not None:
                narrate(f"metrics: {client.facts.metrics}")
            if remedies:
                _switch_on(client, remedies)
            interrupted = _watch(client, args.for_s, show, JSON_EVERY_S if args.json else LINE_EVERY_S)
        finally:
            if args.foreground and client.started and client.ending is None:
                for line in left_behind(client.detach()):
                    narrate(line)
    return _farewell(pid, client.ending, interrupted, args.foreground and client.started)


def _all_ranks(args: argparse.Namespace, options: SessionOptions, pids: list[int]) -> int:
    """Show the ranks of a launcher together: on top the one that the others wait for."""
    outcome = entered(pids, options, say_of, foreground=args.foreground)
    say_failures(outcome)
    show: Callable[[Diagnosis], None] = _show_json if args.json else _show_line
    every_s = JSON_EVERY_S if args.json else LINE_EVERY_S
    at_once = RanksAtOnce(outcome.done, args.for_s)
    compare_sessions(list(outcome.done), at_once, narrate)
    try:
        interrupted = _watch_all(outcome, args.for_s, every_s, show)
    finally:
        for pid, client in outcome.done.items():
            if args.foreground and client.started and client.ending is None:
                for line in left_behind(client.detach()):
                    say_of(pid)(line)
            client.close()
    endings = [client.ending for client in outcome.done.values()]
    over = [ending for ending in endings if ending is not None and ending.kind != "detached"]
    if len(over) == len(endings) and not any(ending.decided for ending in over):
        raise TargetGone("the ranks ended before they could be diagnosed")
    if not args.foreground and None in endings:
        narrate("the sessions continue")
        NARRATOR.next_step(f"autobrrr detach {args.pid[0]}   (ends them)")
    return outcome.exit_code(EXIT_INTERRUPTED if interrupted else EXIT_DONE)


def _watch_all(
    ranks: RanksOutcome[Client],
    for_s: float | None,
    every_s: float,
    show: Callable[[Diagnosis], None],
) -> bool:
    """Show all ranks until the time is up, their sessions end, or the user interrupts (true).

    Raises:
        AutobrrrError: none of the sessions answers any more.
    """
    clients, latest, interrupted = ranks.done, dict[int, Diagnosis](), False
    failed: dict[int, AutobrrrError] = {}
    end_s = None if for_s is None else time.monotonic() + for_s

    def tell(*, final: bool) -> None:
        if latest:
            show(msgspec.structs.replace(together(list(latest.values()), ranks.missing), final=final))

    try:
        while end_s is None or time.monotonic() < end_s:
            running = [pid for pid, each in clients.items() if each.ending is None and pid not in failed]
            if not running:
                break
            time.sleep(every_s)
            looked = for_each(running, lambda pid: _look(clients[pid]), at_once=False)
            latest |= looked.done
            failed |= looked.failed
            for pid, error in looked.failed.items():
                say_of(pid)(error.message)
            tell(final=False)
    except KeyboardInterrupt:
        interrupted = True
    tell(final=True)
    if len(failed) == len(clients):
        raise next(iter(failed.values()))
    return interrupted


def _look(client: Client) -> Diagnosis:
    """The session at this moment, or as it ended."""
    try:
        return client.snapshot()
    except TargetGone:
        for last in client.snapshots():
            return last
        raise


def _on_screen(
    pid: int,
    options: SessionOptions,
    remedies: list[RemedyChoice],
    for_s: float | None,
) -> int:
    """The same in the terminal UI."""

    def opened(on_wait: Callable[[str], None]) -> Client:
        client = open_session(pid, options, on_wait)
        if client.facts.metrics is not None:
            on_wait(f"metrics: {client.facts.metrics}")
        if remedies:
            _switch_on(client, remedies, on_wait)
        return client

    ending = show_session(pid, opened, readonly=options.readonly or options.outside, for_s=for_s)
    return _farewell(pid, ending, False, False)


def _words_of(args: argparse.Namespace) -> list[str]:
    """This command again, for a process that serves one browser."""
    flags = [name for name in ("readonly", "outside", "probe", "no_probe") if getattr(args, name)]
    named = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in (
            ("for", None if args.for_s is None else f"{args.for_s:f}s"),
            ("recipe", os.path.abspath(args.recipe) if args.recipe else None),
            ("metrics", args.metrics),
        )
        if value
    ]
    return ["attach", str(one_pid(args)), *(f"--{name.replace('_', '-')}" for name in flags), *named]


def _watch(client: Client, for_s: float | None, show: Callable[[Diagnosis], None], every_s: float) -> bool:
    """Show snapshots until the time is up, the session ends, or the user interrupts (true)."""
    interrupted = False
    try:
        for snapshot in client.snapshots(for_s=for_s, every_s=every_s, on_activity=narrate):
            show(snapshot)
    except KeyboardInterrupt:
        interrupted = True
    if client.ending is None:
        show(msgspec.structs.replace(client.snapshot(), final=True))
    return interrupted


def _farewell(pid: int, ending: SessionEnding | None, interrupted: bool, ended_with_us: bool) -> int:
    if ending is not None and not ended_with_us:
        narrate(f"the session ended: {ending.why}")
        if ending.kind == "job ended" and not ending.decided:
            raise TargetGone(f"process {pid} ended before it could be diagnosed")
        if ending.kind in ("link lost", "removed"):
            raise AutobrrrError(f"the agent has left process {pid}: {ending.why}", "autobrrr attach again")
        return EXIT_DONE
    if not ended_with_us:
        narrate("the session continues")
        NARRATOR.next_step(f"autobrrr detach {pid}   (ends it)")
    return EXIT_INTERRUPTED if interrupted else EXIT_DONE


def live_remedies(path: str, pid: int) -> list[RemedyChoice]:
    """The remedies of a recipe that a running job can take; the others are named.

    Raises:
        UsageError: the file is no valid recipe.
    """
    from autobrrr import recipe
    from autobrrr.attach import job_roles  # not for --help

    loaded = recipe.load(path)
    live, left_out = recipe.live_remedies(loaded)
    here = recipe.here(recipe.script_of([each.raw for each in procfs.cmdline(pid)]))
    torch = job_roles.torch_of(pid)
    version = None if torch is None or torch.version is None else str(torch.version)
    for line in (*recipe.misfits(loaded, replace(here, torch=version)), *left_out):
        narrate(f"recipe: {line}")
    return live


def _switch_on(client: Client, remedies: list[RemedyChoice], say: Callable[[str], None] = narrate) -> None:
    """Apply what a recipe names; a remedy whose object the loop has not shown yet is tried again."""
    waiting, until_s = remedies, time.monotonic() + MEETING_S
    while waiting:
        outcomes = client.apply(waiting)
        patient = time.monotonic() < until_s
        early = {each.remedy for each in outcomes if patient and each.code == "not_met"}
        for each in outcomes:
            if each.remedy not in early:
                outcome = "applied" if each.why is None else f"not applied: {each.why}"
                say(f"recipe: {each.remedy} is {outcome}")
        waiting = [each for each in waiting if each.remedy in early]
        if waiting:
            time.sleep(MEETING_EVERY_S)


def _show_json(snapshot: Diagnosis) -> None:
    if snapshot.final is not True:
        snapshot = msgspec.structs.replace(snapshot, final=False)
    print(to_json(snapshot), flush=True)


def _show_line(snapshot: Diagnosis) -> None:
    print(live_line(snapshot), flush=True)
