"""`autobrrr diagnose`: attach, name the bottleneck, leave; takes off only what it put on.

Ends as soon as the verdict is of high confidence, at the latest when its time is up.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import get_args

from autobrrr.cli.durations import duration_s
from autobrrr.cli.launcher_ranks import doing_of, enter, for_each, ranks_of, say_of
from autobrrr.cli.narration import NARRATOR, narrate
from autobrrr.cli.printed import columns, show
from autobrrr.cli.verb_arguments import add_target, one_pid, session_options, wanted_probing
from autobrrr.client import all_ranks
from autobrrr.client.diagnosing import DiagnosisOptions, diagnosed, of_several_ranks
from autobrrr.errors import EXIT_DONE
from autobrrr.records import Diagnosis, to_json
from autobrrr.report.text.next_step import after_diagnosis
from autobrrr.report.text.rank_text import ranks_table
from autobrrr.report.text.sweep_text import sweep_text
from autobrrr.report.text.verdict_text import verdict_text
from autobrrr.report.text.window_text import window_text
from autobrrr.sidecar.process.session_options import Sweep


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--for",
        dest="for_s",
        type=duration_s,
        metavar="D",
        help="longest time (default: 15s or 50 steps, whichever is later)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--window", action="store_true", help="profile a few steps too; training stalls for a moment"
    )
    parser.add_argument(
        "--sweep",
        choices=get_args(Sweep),
        help="replay a step at other sizes of its data too",
    )


def run(args: argparse.Namespace) -> int:
    pid = one_pid(args)
    options = DiagnosisOptions(
        session=session_options(args),
        for_s=args.for_s,
        window=args.window,
        sweep=args.sweep,
        probe_again=wanted_probing(args) if args.probe or args.no_probe else None,
    )
    launched = ranks_of(pid)
    if launched:
        return _run_all(args, options, launched)
    found = diagnosed(pid, options, narrate, doing=NARRATOR.status)
    if of_several_ranks(found):
        found = all_ranks.with_siblings(found, all_ranks.ask(all_ranks.siblings(pid)))
    _show(args, found)
    return EXIT_DONE


def _run_all(args: argparse.Namespace, options: DiagnosisOptions, pids: list[int]) -> int:
    """The same for every rank of a launcher; on top the one that the others wait for."""
    opened = partial(enter, owned=True)
    outcome = for_each(pids, lambda pid: diagnosed(pid, options, say_of(pid), opened, doing_of(pid)))
    outcome.say_failures()
    found = all_ranks.together(list(outcome.done.values()), outcome.missing)
    _show(args, found, ranks_of_launcher=True)
    return outcome.exit_code(EXIT_DONE)


def _show(args: argparse.Namespace, found: Diagnosis, *, ranks_of_launcher: bool = False) -> None:
    if args.json:
        print(to_json(found))
        return
    show(verdict_text(found))
    if args.window and found.window is not None:
        show(window_text(found.window))
    if found.sweep is not None and found.sweep.along == args.sweep:
        show(sweep_text(found.sweep))
    if found.ranks is not None and ranks_of_launcher:
        show(ranks_table(found.ranks, columns()))
    NARRATOR.next_step(after_diagnosis(found))
