"""`autobrrr diagnose`: attach, name the bottleneck, leave; takes off only what it put on.

Ends as soon as the verdict is of high confidence, at the latest when its time is up.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

import msgspec

from autobrrr.cli.durations import duration_s
from autobrrr.cli.machine_peaks import likely_threads, make_sure_of_peaks, threads_at_once
from autobrrr.cli.target import (
    add_target,
    narrate,
    one_pid,
    session_options,
    tell_about_joined,
    wanted_probing,
)
from autobrrr.client import Client, join_or_start
from autobrrr.errors import EXIT_DONE, AutobrrrError, TargetGone
from autobrrr.records import Diagnosis, to_json
from autobrrr.report.sweep import sweep_text
from autobrrr.report.text import verdict_text
from autobrrr.report.window import window_text
from autobrrr.sidecar.options import Sweep

DEFAULT_S = 15.0
DEFAULT_STEPS = 50
STILL_S = 60.0  # without a single step, nothing more will be known
EVERY_S = 0.25


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


def run(args: argparse.Namespace) -> int:
    pid = one_pid(args)
    options = session_options(args)
    if not (options.readonly or options.outside):
        make_sure_of_peaks(threads_at_once(pid, likely_threads(pid)))
    with join_or_start(pid, options, on_wait=narrate) as client:
        try:
            if client.started:
                client.own()
            else:
                tell_about_joined(client, options)
                client.diagnose(wanted_probing(args) if args.probe or args.no_probe else None)
            if args.window:
                client.window()
            if args.sweep:
                client.sweep(args.sweep)
            patience = Patience(for_s=args.for_s, window=args.window, sweep=bool(args.sweep))
            found = _wait_for_verdict(client, patience)
        finally:
            if client.started and client.ending is None:
                left = client.detach().left
                if left:
                    narrate(f"could not be taken off: {', '.join(left)}")
    _refuse_nothing(pid, client)
    if args.json:
        print(to_json(msgspec.structs.replace(found, final=None)))
    else:
        print(verdict_text(found))
        if args.window and found.window is not None:
            print(window_text(found.window))
        if args.sweep and found.sweep is not None:
            print(sweep_text(found.sweep))
    return EXIT_DONE


@dataclass(slots=True, kw_only=True)
class Patience:
    """When to stop waiting for a better verdict.

    Without `--for`: 15 s or 50 steps, whichever is later; not for a job that makes no steps.
    """

    for_s: float | None = None
    window: bool = False  # what was asked for is not there before a profiler window is
    sweep: bool = False  # ... or a sweep
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
        swept = not self.sweep or snapshot.sweep is not None
        asked_for = swept and (not self.window or snapshot.window is not None)
        if (snapshot.confidence == "high" and asked_for) or snapshot.final:
            return True
        spent_s = now_s - self.began_s
        if self.for_s is not None:
            return spent_s >= self.for_s
        stuck = now_s - self.moved_s > STILL_S
        return stuck or (swept and spent_s >= DEFAULT_S and self.steps >= DEFAULT_STEPS)


def _wait_for_verdict(client: Client, patience: Patience) -> Diagnosis:
    told = None
    threads_known = False
    for snapshot in client.snapshots(every_s=EVERY_S):
        if not threads_known and snapshot.job is not None and snapshot.job.threads:
            threads_known = True
            make_sure_of_peaks(threads_at_once(snapshot.pid, snapshot.job.threads))
        if patience.is_over(snapshot):
            return snapshot
        if snapshot.activity != told:
            told = snapshot.activity
            narrate(f"{told}")
    raise TargetGone("the session ended without a last word")


def _refuse_nothing(pid: int, client: Client) -> None:
    """A session that ended by itself: fine where there is something to say."""
    ending = client.ending
    if ending is None or ending.kind == "detached" or ending.decided:
        return
    if ending.kind == "job ended":
        raise TargetGone(f"process {pid} ended before anything could be said about it")
    raise AutobrrrError(f"the agent has left process {pid}: {ending.why}", "autobrrr diagnose again")
