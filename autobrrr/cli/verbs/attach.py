"""`autobrrr attach`: start or join the session of a job, and show it live.

The session outlives this command; `autobrrr detach` ends it.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from autobrrr.attach import door
from autobrrr.cli.launcher_ranks import JobRanks, ranks_of, say_failures
from autobrrr.cli.printed import NARRATOR, narrate
from autobrrr.cli.terminal_screen import is_served, live_source, serve, wants_screen
from autobrrr.cli.verb_arguments import add_target, flag, one_pid, session_options
from autobrrr.client.all_ranks import together
from autobrrr.client.each_rank import RanksOutcome, compare_sessions, entered
from autobrrr.client.session_client import Client, left_behind, open_session
from autobrrr.errors import EXIT_DONE, EXIT_INTERRUPTED, AutobrrrError, TargetGone, UsageError
from autobrrr.machine import procfs
from autobrrr.records import Diagnosis, to_json
from autobrrr.records.session_requests import ApplyRemedies, TakeSnapshot
from autobrrr.records.wire_answers import SessionEnding
from autobrrr.report.text.verdict_text import live_line
from autobrrr.sidecar.process.session_options import SessionOptions

JSON_EVERY_S = 0.5
MEETING_S, MEETING_EVERY_S = 10.0, 0.5
LINE_EVERY_S = 1.0
LAST_WORDS_S = 0.1  # of a session that ended before it was looked at: they are here already
WEB_PORT = 8000


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    flag(parser, "--for D", "watch for this long, then leave")
    untouched = "change nothing in the job: no traced steps, no batch probe, no remedies"
    flag(parser, "--readonly", untouched)
    flag(parser, "--outside", "put no code into the job: show only what the machine shows")
    flag(parser, "--recipe FILE", "apply the live remedies of a recipe")
    flag(parser, "--foreground", "end the session with this command")
    served = "serve figures to Prometheus while the session lasts: on 127.0.0.1, or HOST:PORT"
    flag(parser, "--metrics PORT", served)
    shown = parser.add_mutually_exclusive_group()
    flag(shown, "--plain", "print live lines, also on a terminal")
    flag(shown, "--json", "print one JSON object per snapshot")
    in_browser = f"show the screen in a browser, on localhost only (default port {WEB_PORT})"
    flag(shown, "--web PORT", in_browser, nargs="?", type=int, const=WEB_PORT)


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
    if args.web is not None and not is_served():
        return serve(args.web)  # each page is this command again
    door.go_through(pid, narrate)
    wanted = live_remedies(args.recipe, pid) if args.recipe else ApplyRemedies([])
    on_screen = wants_screen() and not (args.plain or args.json or args.foreground)
    ranks = ranks_of(pid)
    for asked, given in (("--metrics takes", args.metrics), ("--recipe applies remedies to", args.recipe)):
        if ranks.launched and given:
            raise UsageError(
                f"{asked} one process, and a launcher has several",
                f"attach to one of them, for example {ranks.pids[0]}",
            )
    if on_screen:
        outcome = RanksOutcome[Client]()
        if ranks.launched:
            outcome = entered(ranks.pids, options, ranks.say)
            say_failures(outcome)
        for client in outcome.done.values():
            client.close()  # the screen finds them among the sessions
        code = _on_screen(next(iter(outcome.done), pid), options, wanted, args.for_s)
        if ranks.launched:
            NARRATOR.next_step(f"autobrrr detach {pid}   (ends the sessions of all ranks)")
        return outcome.exit_code(code)
    outcome = entered(ranks.pids, options, ranks.say, owned=args.foreground)
    say_failures(outcome)
    clients = outcome.done
    try:
        if ranks.launched:
            compare_sessions(list(clients), args.for_s, narrate)
        else:
            _begin(clients[pid], wanted, narrate)
        interrupted = _watch(outcome, args, ranks)
    finally:
        for rank, client in clients.items():
            if args.foreground and client.ending is None:
                ending = client.detach() if client.started else client.leave()
                for line in [] if ending is None else left_behind(ending):
                    ranks.say(rank)(line)
            client.close()
    ends_with_us = args.foreground and all(client.started for client in clients.values())
    endings = [client.ending for client in clients.values()]
    return outcome.exit_code(_farewell(pid, endings, interrupted, ends_with_us))


def _watch(outcome: RanksOutcome[Client], args: argparse.Namespace, ranks: JobRanks) -> bool:
    """Show one process, or all ranks together: on top the one that the others wait for.

    Until the time is up, their sessions end, or the user interrupts (true).

    Raises:
        AutobrrrError: none of the sessions answers any more.
    """
    clients, latest, interrupted = outcome.done, dict[int, Diagnosis](), False
    failed: dict[int, AutobrrrError] = {}
    end_s = math.inf if args.for_s is None else time.monotonic() + args.for_s
    every_s = JSON_EVERY_S if args.json else LINE_EVERY_S

    def running() -> list[int]:
        return [pid for pid, each in clients.items() if each.ending is None and pid not in failed]

    def look(pid: int, for_s: float) -> None:
        """Take in what a session says in this time; how it stands now where there is none."""
        try:
            if for_s <= 0:
                latest[pid] = clients[pid].ask(TakeSnapshot())
            for found in clients[pid].snapshots(for_s=for_s, every_s=every_s, on_activity=ranks.say(pid)):
                latest[pid] = found
        except AutobrrrError as error:
            failed[pid] = error
            if ranks.launched:
                ranks.say(pid)(error.message)

    def tell(*, final: bool) -> None:
        found = list(latest.values())
        shown = together(found, outcome.missing) if ranks.launched else found[0]
        shown = msgspec.structs.replace(shown, final=final)
        print(to_json(shown) if args.json else live_line(shown), flush=True)

    try:
        while (pids := running()) and (left_s := end_s - time.monotonic()) > 0:
            before = dict(latest)
            for pid in pids:
                look(pid, min(every_s, left_s) / len(pids))
            if latest != before and running():
                tell(final=False)
    except KeyboardInterrupt:
        interrupted = True
    for pid in clients.keys() - failed.keys():
        look(pid, 0.0 if clients[pid].ending is None else LAST_WORDS_S)
    if len(failed) == len(clients):
        raise next(iter(failed.values()))
    if latest:
        tell(final=True)
    return interrupted


def _on_screen(pid: int, options: SessionOptions, wanted: ApplyRemedies, for_s: float | None) -> int:
    """The same in the terminal UI."""

    def opened(on_wait: Callable[[str], None]) -> Client:
        client = open_session(pid, options, on_wait)
        _begin(client, wanted, on_wait)
        return client

    from autobrrr_tui.app import show  # not for --help

    source = live_source(pid, opened, readonly=options.readonly or options.outside)
    show(source, for_s=for_s)
    if source.error is not None:
        raise source.error
    return _farewell(pid, [source.ending], False, False)


def _farewell(
    pid: int, endings: Sequence[SessionEnding | None], interrupted: bool, ends_with_us: bool
) -> int:
    """What is said at the end. Of several ranks one that goes on counts, else one that could be judged."""
    over = sorted((each for each in endings if each is not None), key=lambda each: not each.decided)
    if len(over) == len(endings) and not ends_with_us:
        narrate(f"the session ended: {over[0].why}")
        if over[0].kind == "job ended" and not over[0].decided:
            raise TargetGone(f"process {pid} ended before it could be diagnosed")
        if over[0].kind in ("link lost", "removed"):
            raise AutobrrrError(f"the agent has left process {pid}: {over[0].why}", "autobrrr attach again")
        return EXIT_DONE
    if not ends_with_us:
        several = len(endings) > 1
        narrate("the sessions continue" if several else "the session continues")
        NARRATOR.next_step(f"autobrrr detach {pid}   (ends {'them' if several else 'it'})")
    return EXIT_INTERRUPTED if interrupted else EXIT_DONE


def live_remedies(path: str, pid: int) -> ApplyRemedies:
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
    return ApplyRemedies(live, loaded.numerics)


def _begin(client: Client, wanted: ApplyRemedies, say: Callable[[str], None]) -> None:
    """Apply what a recipe names; a remedy whose object the loop has not shown yet is tried again."""
    if client.facts.metrics is not None:
        say(f"metrics: {client.facts.metrics}")
    until_s = time.monotonic() + MEETING_S
    while wanted.remedies:
        outcomes = client.ask(wanted)
        patient = time.monotonic() < until_s
        early = {each.remedy for each in outcomes if patient and each.code == "not_met"}
        for each in outcomes:
            if each.remedy not in early:
                outcome = "applied" if each.why is None else f"not applied: {each.why}"
                say(f"recipe: {each.remedy} is {outcome}")
        waiting = [each for each in wanted.remedies if each.remedy in early]
        wanted = msgspec.structs.replace(wanted, remedies=waiting)
        if waiting:
            time.sleep(MEETING_EVERY_S)
