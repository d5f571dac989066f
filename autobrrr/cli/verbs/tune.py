"""`autobrrr tune PID`, and `autobrrr tune -- CMD…`, which `tune_script` does.

`tune PID`: try remedies on the running job, keep what is proven faster, write a recipe.

The session stays, and kept remedies stay applied, until `autobrrr detach`. Ctrl-C reverts the trial
that runs.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

import msgspec

from autobrrr.attach import door
from autobrrr.cli import tune_script
from autobrrr.cli.durations import duration_s, share_of_work
from autobrrr.cli.launcher_ranks import named, ranks_of, say_of
from autobrrr.cli.narration import NARRATOR, narrate
from autobrrr.cli.output_file import check_places, write_file
from autobrrr.cli.printed import columns, show
from autobrrr.client.diagnosing import await_verdict, before_tuning
from autobrrr.client.each_rank import entered, ready_to_tune
from autobrrr.client.joined_session import open_session
from autobrrr.client.session_client import Client
from autobrrr.errors import EXIT_DONE, EXIT_GUARD_UNDID, AutobrrrError, CannotAttach, UsageError
from autobrrr.machine import procfs
from autobrrr.machine.kernel_text import number
from autobrrr.records import Advice, TuneProgress, Tuning, to_json, verdict_line
from autobrrr.records.tuning_records import TuneRequest
from autobrrr.report.pages.tuning_parts import beyond, progress_line, trial_line, tuning_text
from autobrrr.report.text.next_step import after_tuning
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.told_to_end import stopped_in_order

DEFAULT_S = 60.0
LEAST_S = 5.0  # of a tuning, whatever attaching took
OF_A_SCRIPT = (
    "param",
    "trials",
    "yes",
    "allow_writes",
    "no_network",
    "keep_output",
    "launcher",
    "html",
    "storage",
    "study",
)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="*", metavar="PID", help="the training process; or -- CMD…: the script to start"
    )
    parser.add_argument(
        "--for", dest="for_s", type=duration_s, metavar="D", help="time budget (default 1m; for a script 10m)"
    )
    parser.add_argument(
        "--horizon",
        dest="horizon_s",
        type=duration_s,
        metavar="D",
        help="time over which a gain must pay for its trial (default 30m)",
    )
    parser.add_argument(
        "--max-loss",
        type=share_of_work,
        metavar="P%",
        help="most work that the job may lose in any five minutes (default 2%%)",
    )
    parser.add_argument(
        "--allow",
        metavar="CLASS",
        help="widest exactness class to try: bitwise, rounding (default), stream, changes-training;"
        " unproven: also what no GPU has run yet",
    )
    parser.add_argument("--only", metavar="R,…", help="try only these remedies")
    parser.add_argument(
        "--recipe", type=Path, metavar="FILE", help="write the kept remedies and their evidence"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    tune_script.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if _is_script(args):
        return tune_script.run(args, args.target)
    with stopped_in_order():
        return _tune(args)


def _tune(args: argparse.Namespace) -> int:
    pid = _pid(args)
    began_s = time.monotonic()
    for_s = DEFAULT_S if args.for_s is None else args.for_s
    check_places(args.recipe)
    from autobrrr.tuner.candidate_space import allowed_classes, check_names  # not for --help

    only = None if args.only is None else [name.strip() for name in args.only.split(",") if name.strip()]
    allowed_classes(args.allow)
    check_names(only or ())
    options = SessionOptions()
    launched = ranks_of(pid)
    with contextlib.ExitStack() as sessions:
        if launched:
            outcome = entered(launched, options, say_of, owned=True)
            clients = {pid: sessions.enter_context(each) for pid, each in outcome.done.items()}
            outcome.refuse_any()
            client = ready_to_tune(clients, for_s, say_of)
            narrate(f"tuning all {len(launched)} ranks, timed on {named(client.facts.pid)}")
        else:
            client = sessions.enter_context(open_session(pid, options, narrate, owned=True))
            clients = {pid: client}
            if client.started:
                found = await_verdict(client, before_tuning(for_s), narrate, doing=NARRATOR.status)
                narrate(verdict_line(found))
        for each in clients.values():
            each.own(False)  # from here on something may be kept: it stays when the command ends
        spent_s = time.monotonic() - began_s
        left_s = max(LEAST_S, for_s - spent_s)
        if args.for_s is not None:
            narrate(f"{left_s:.0f} s left; confirming may take {left_s / 4:.0f} s more")
        try:
            asked = TuneRequest(
                for_s=left_s,
                spent_s=spent_s,
                horizon_s=args.horizon_s,
                max_loss=args.max_loss,
                allow=args.allow,
                only=only,
            )
            tuning = client.tune(
                asked, on_progress=_say_progress, on_trial=lambda trial: narrate(trial_line(trial))
            )
        except KeyboardInterrupt:
            NARRATOR.clear()
            narrate("stopping; the current trial is reverted, remedies kept before it stay applied")
            narrate(f"autobrrr detach {pid} reverts them; no recipe is written")
            raise
        advised = [] if only else _advice(client)
    tuning = _with_recipe(tuning, args.recipe)
    NARRATOR.clear()
    if args.json:
        print(to_json(tuning), flush=True)
    else:
        show(tuning_text(tuning, columns()))
    for line in beyond(advised):
        narrate(line)
    if args.recipe is not None and not tuning.kept:
        narrate("no recipe is written: no remedy was proven faster")
    if tuning.kept:
        narrate(f"kept remedies stay applied; autobrrr detach {pid} reverts them")
    if not args.json:
        NARRATOR.next_step(after_tuning(tuning, pid, list(map(str, procfs.cmdline(pid)))))
    return EXIT_GUARD_UNDID if tuning.guard_undid else EXIT_DONE


def _is_script(args: argparse.Namespace) -> bool:
    """Whether a command is given, not a process.

    Raises:
        UsageError: options of a script, and no command.
    """
    words: list[str] = args.target
    if words and any(number(word) is None or word.startswith("-") for word in words):
        return True
    given = next((name for name in OF_A_SCRIPT if getattr(args, name)), None)
    if given is not None:
        flag = f"--{given.replace('_', '-')}"
        why = f"{flag} is for a script that is started, and no command is given"
        hint = f"autobrrr tune {flag} … -- python train.py"
        raise UsageError(why, "autobrrr report PID --html FILE" if given == "html" and words else hint)
    return False


def _pid(args: argparse.Namespace) -> int:
    words: list[str] = args.target
    if not words:
        raise UsageError("no process is given", "autobrrr tune PID; autobrrr ls lists the jobs")
    if len(words) > 1:
        raise CannotAttach(f"autobrrr tunes one job at a time, not {', '.join(words)}", "name one of them")
    return door.go_through(int(words[0]), narrate)  # plain digits, or it would be a script


def _advice(client: Client) -> list[Advice]:
    """What the diagnosis says by now; nothing where the job has ended meanwhile."""
    try:
        return client.snapshot().advice
    except AutobrrrError:
        return []


def _say_progress(progress: TuneProgress) -> None:
    left_s = (progress.budget_ns - progress.elapsed_ns) / 1e9
    subject = f"{progress.stage} {progress.remedy} {progress.options}"
    NARRATOR.status(progress_line(progress), left_s, subject=subject)


def _with_recipe(tuning: Tuning, file: Path | None) -> Tuning:
    if file is None or not tuning.kept:
        return tuning
    from autobrrr import recipe

    text = recipe.dump(recipe.from_tuning(tuning))
    write_file(file, text, "the remedies stay applied; tune again with another file")
    return msgspec.structs.replace(tuning, recipe=str(file))
