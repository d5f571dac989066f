"""`autobrrr diagnose`: attach, name the bottleneck, leave; takes off only what it put on.

Ends as soon as the verdict is of high confidence, at the latest when its time is up.
"""

from __future__ import annotations

import argparse
from typing import get_args

from autobrrr.attach import door
from autobrrr.cli.launcher_ranks import ranks_of, say_failures
from autobrrr.cli.printed import NARRATOR, Loudness, columns, narrate, show
from autobrrr.cli.verb_arguments import add_target, flag, one_pid, session_options, wanted_probing
from autobrrr.client.diagnosing import DiagnosisOptions
from autobrrr.client.each_rank import as_one, diagnosed_ranks
from autobrrr.errors import EXIT_DONE
from autobrrr.records import Diagnosis, to_json
from autobrrr.report.next_step import after_diagnosis
from autobrrr.report.page_text import parts_text
from autobrrr.report.pages.diagnosis_parts import ranks_table, sweep_parts, window_parts
from autobrrr.report.text.verdict_text import verdict_text
from autobrrr.sidecar.process.session_options import Sweep


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    longest = "longest time (default: 9s of measuring or 30 steps, whichever is later, at most 20s)"
    flag(parser, "--for D", longest)
    flag(parser, "--json", "print one JSON object")
    flag(
        parser,
        "--window",
        "profile a few steps too; training stalls for a moment; before CUDA 12.6 launches stay slower",
    )
    replayed = "replay a step at other sizes of its data too"
    parser.add_argument("--sweep", choices=get_args(Sweep), help=replayed)


def run(args: argparse.Namespace) -> int:
    pid = door.go_through(one_pid(args), narrate)
    options = DiagnosisOptions(
        session=session_options(args),
        for_s=args.for_s,
        window=args.window,
        sweep=args.sweep,
        probe_again=wanted_probing(args) if args.probe or args.no_probe else None,
    )
    ranks = ranks_of(pid)
    outcome = diagnosed_ranks(ranks.pids, options, ranks.say, ranks.doing)
    say_failures(outcome)
    _show(args, as_one(outcome, has_ranks=ranks.launched), ranks_of_launcher=ranks.launched)
    return outcome.exit_code(EXIT_DONE)


def _show(args: argparse.Namespace, found: Diagnosis, *, ranks_of_launcher: bool) -> None:
    if args.json:
        print(to_json(found))
        return
    show(verdict_text(found, verbose=NARRATOR.loudness is Loudness.VERBOSE))
    if args.window and found.window is not None:
        show(parts_text(*window_parts(found.window), width=columns()))
    if found.sweep is not None and found.sweep.along == args.sweep:
        show(parts_text(*sweep_parts(found.sweep), width=columns()))
    if found.ranks is not None and ranks_of_launcher:
        show(parts_text(ranks_table(found.ranks), width=columns()))
    NARRATOR.next_step(after_diagnosis(found))
