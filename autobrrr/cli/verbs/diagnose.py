"""`autobrrr diagnose`: attach, name the bottleneck, leave; takes off only what it put on.

Ends as soon as the verdict is of high confidence, at the latest when its time is up.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

import msgspec

from autobrrr.cli.durations import duration_s
from autobrrr.cli.job_peaks import likely_threads, make_sure_of_peaks, threads_at_once
from autobrrr.cli.launcher_ranks import enter, for_each, ranks_of, say_of
from autobrrr.cli.verb_arguments import (
    add_target,
    narrate,
    one_pid,
    session_options,
    tell_about_joined,
    wanted_probing,
)
from autobrrr.client import all_ranks
from autobrrr.client.session_client import Client, join_or_start
from autobrrr.errors import EXIT_DONE, AutobrrrError, TargetGone
from autobrrr.records import Diagnosis, to_json
from autobrrr.report.text.rank_text import ranks_table
from autobrrr.report.text.sweep_text import sweep_text
from autobrrr.report.text.verdict_text import verdict_text
from autobrrr.report.text.window_text import window_text
from autobrrr.sidecar.process.session_options import SessionOptions, Sweep
from autobrrr.sidecar.session.session_states import AWAITS_TURN

DEFAULT_S = 15.0
DEFAULT_STEPS = 50
STILL_S = 60.0  # without a single step, nothing more will be known
EVERY_S = 0.25
BEFORE_TIMED = ("attaching", "watching", "tracing", "timing")  # states in which collectives are not timed yet

Say = Callable[[str], None]
Opened = Callable[[int, SessionOptions, Say], Client]
_MEASURING_PEAKS = threading.Lock()


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--for", dest="for_s", type=duration_s, metavar="D", help="at most so long (default: 15s or 50 steps)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--window", action="store_true", help="profile a few steps too: training stalls for a moment"
    )
    parser.add_argument(
        "--sweep",
        choices=get_args(Sweep),
        help="replay a step at other sizes of its data too: batch, length or width",
    )


def _opened(pid: int, options: SessionOptions, say: Say) -> Client:
    return join_or_start(pid, options, on_wait=say)


def run(args: argparse.Namespace) -> int:
    pid = one_pid(args)
    options = session_options(args)
    launched = ranks_of(pid)
    if launched:
        return _run_all(args, options, launched)
    found = _diagnosed(args, options, pid, narrate)
    if _of_several_ranks(found):
        found = all_ranks.with_siblings(found, all_ranks.ask(all_ranks.siblings(pid)))
    _show(args, found)
    return EXIT_DONE


def _run_all(args: argparse.Namespace, options: SessionOptions, pids: list[int]) -> int:
    """The same for every rank of a launcher; on top the one that the others wait for."""
    outcome = for_each(pids, lambda pid: _diagnosed(args, options, pid, say_of(pid), enter))
    outcome.say_failures()
    found = all_ranks.together(list(outcome.done.values()), outcome.missing)
    _show(args, found)
    if not args.json and found.ranks is not None:
        print(ranks_table(found.ranks))
    return outcome.exit_code(EXIT_DONE)


def _diagnosed(
    args: argparse.Namespace, options: SessionOptions, pid: int, say: Say, opened: Opened = _opened
) -> Diagnosis:
    """Attach to one process, wait for its verdict, take off what was put on."""
    if not (options.readonly or options.outside):
        _peaks(threads_at_once(pid, likely_threads(pid)))
    with opened(pid, options, say) as client:
        try:
            if client.started:
                client.own()
            else:
                tell_about_joined(client, options, say)
                client.diagnose(wanted_probing(args) if args.probe or args.no_probe else None)
            if args.window:
                client.window()
            if args.sweep:
                client.sweep(args.sweep)
            patience = Patience(for_s=args.for_s, window=args.window, sweep=args.sweep)
            found = _wait_for_verdict(client, patience, say)
            if not patience.has_swept(found):
                say(f"the sweep of the {args.sweep} did not come to its end")
        finally:
            if client.started and client.ending is None:
                left = client.detach().left
                if left:
                    say(f"could not be taken off: {', '.join(left)}")
    _refuse_nothing(pid, client)
    return msgspec.structs.replace(found, final=None)


def _show(args: argparse.Namespace, found: Diagnosis) -> None:
    if args.json:
        print(to_json(found))
        return
    print(verdict_text(found))
    if args.window and found.window is not None:
        print(window_text(found.window))
    if found.sweep is not None and found.sweep.along == args.sweep:
        print(sweep_text(found.sweep))


def _peaks(threads: int | None) -> None:
    with _MEASURING_PEAKS:
        make_sure_of_peaks(threads)


def _timed(snapshot: Diagnosis) -> bool:
    """Whether its collectives have been timed, where it has other ranks to wait for."""
    return not _of_several_ranks(snapshot) or snapshot.state not in BEFORE_TIMED


def _of_several_ranks(found: Diagnosis) -> bool:
    return found.job is not None and found.job.has_other_ranks


@dataclass(slots=True, kw_only=True)
class Patience:
    """When to stop waiting for a better verdict.

    Without `--for`: 15 s or 50 steps, whichever is later; not for a job that makes no steps.
    """

    for_s: float | None = None
    window: bool = False  # what was asked for is not there before a profiler window is
    sweep: Sweep | None = None  # ... or a sweep along this
    clock_s: Callable[[], float] = time.monotonic
    began_s: float = field(init=False)
    moved_s: float = field(init=False)
    steps: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.began_s = self.moved_s = self.clock_s()

    def is_over(self, snapshot: Diagnosis) -> bool:
        """Whether this snapshot is what the user gets."""
        now_s = self.clock_s()
        if (snapshot.steps or 0) > self.steps:
            self.steps, self.moved_s = snapshot.steps or 0, now_s
        if snapshot.activity == AWAITS_TURN:
            self.began_s = now_s  # its time has not begun
        swept = self.has_swept(snapshot)
        windowed = not self.window or snapshot.window is not None
        asked_for = swept and windowed and _timed(snapshot)
        if (snapshot.confidence == "high" and asked_for) or snapshot.final:
            return True
        spent_s = now_s - self.began_s
        if self.for_s is not None:
            return spent_s >= self.for_s
        stuck = now_s - self.moved_s > STILL_S
        return stuck or (swept and spent_s >= DEFAULT_S and self.steps >= DEFAULT_STEPS)

    def has_swept(self, snapshot: Diagnosis) -> bool:
        """Whether the sweep that was asked for is there, or none was; another client may sweep too."""
        return self.sweep is None or (snapshot.sweep is not None and snapshot.sweep.along == self.sweep)


def _wait_for_verdict(client: Client, patience: Patience, say: Say) -> Diagnosis:
    told = None
    threads_known = False
    for snapshot in client.snapshots(every_s=EVERY_S):
        if not threads_known and snapshot.job is not None and snapshot.job.threads:
            threads_known = True
            _peaks(threads_at_once(snapshot.pid, snapshot.job.threads))
        if patience.is_over(snapshot):
            return snapshot
        if snapshot.activity != told:
            told = snapshot.activity
            say(f"{told}")
    raise TargetGone("the session ended without a last word")


def _refuse_nothing(pid: int, client: Client) -> None:
    """A session that ended by itself: fine where there is something to say."""
    ending = client.ending
    if ending is None or ending.kind == "detached" or ending.decided:
        return
    if ending.kind == "job ended":
        raise TargetGone(f"process {pid} ended before anything could be said about it")
    raise AutobrrrError(f"the agent has left process {pid}: {ending.why}", "autobrrr diagnose again")
