"""`autobrrr tune PID`: try remedies on the running job, keep what is proven faster, write a recipe.

Kept remedies stay applied, and the session stays, until `autobrrr detach`; with nothing kept, it ends here.
Ctrl-C reverts the trial that runs.

`autobrrr tune [--param SPEC]… -- CMD…`: start a script repeatedly, and write down what makes it faster. The
script is never edited; its files are as they were afterwards, unless `--allow-writes` is given.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from autobrrr import paths
from autobrrr.attach import door
from autobrrr.cli.launcher_ranks import named, ranks_of
from autobrrr.cli.printed import NARRATOR, check_places, columns, deliver, narrate, show, write_file
from autobrrr.cli.verb_arguments import flag, last_words_said, words_of
from autobrrr.client.each_rank import entered, judge_first, ready_to_tune
from autobrrr.client.session_client import Client
from autobrrr.errors import EXIT_DONE, EXIT_GUARD_UNDID, AutobrrrError, CannotAttach, UsageError
from autobrrr.machine import procfs
from autobrrr.machine.kernel_text import number
from autobrrr.records import Advice, ExactnessClass, TuneProgress, Tuning, to_json
from autobrrr.records.session_requests import OwnSession, TakeSnapshot, TuneRequest
from autobrrr.report.next_step import after_tuning
from autobrrr.report.pages.tuning_parts import beyond, progress_line, trial_line, tuning_text
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.told_to_end import stopped_in_order

if TYPE_CHECKING:
    from autobrrr.recipe import Recipe
    from autobrrr.relaunch.search.argparse_flags import Declared
    from autobrrr.relaunch.search.point_search import Search
    from autobrrr.relaunch.search.search_space import Parameter, Space
    from autobrrr.relaunch.search.study_storage import Storage
    from autobrrr.relaunch.trial.live_trial import LiveTrial
    from autobrrr.relaunch.trial.trial_factory import TrialFactory

DEFAULT_S = 60.0
LEAST_S = 5.0  # of a tuning, whatever attaching took
SPEC = re.compile(r"-[^=]*=(int|float|choice):")
NETWORK = (
    "trials keep network access: what the script sends, each start sends (--no-network: nothing);"
    " trackers and the Hugging Face hub are off"
)
OF_A_JOB = {"horizon_s": "--horizon", "max_loss": "--max-loss", "only": "--only"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="*", metavar="PID", help="the training process; or -- CMD…: the script to start"
    )
    flag(parser, "--for D", "time budget (default 1m; for a script 10m)")
    flag(parser, "--horizon D", "time over which a gain must pay for its trial (default 30m)")
    flag(parser, "--max-loss P%", "most work that the job may lose in any five minutes (default 2%%)")
    classes = (
        "widest exactness class to try: bitwise, rounding (default), stream, changes-training;"
        " unproven: also what no GPU has run yet"
    )
    flag(parser, "--allow CLASS", classes)
    flag(parser, "--only R,…", "try only these remedies")
    flag(parser, "--recipe FILE", "write the kept remedies and their evidence")
    flag(parser, "--json", "print one JSON object at the end")
    _add_script_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if _is_script(args):
        _refuse(args)
        with last_words_said():
            return _study(args, args.target)
    with stopped_in_order():
        return _tune(args)


def _tune(args: argparse.Namespace) -> int:
    pid = _pid(args)
    began_s = time.monotonic()
    for_s = DEFAULT_S if args.for_s is None else args.for_s
    check_places(args.recipe)
    from autobrrr import recipe  # not for --help
    from autobrrr.tuner.candidate_space import allowed_classes, allows_unproven, check_names

    only = None if args.only is None else [name.strip() for name in args.only.split(",") if name.strip()]
    allowed_classes(args.allow)
    check_names(only or ())
    ranks = ranks_of(pid)
    with contextlib.ExitStack() as sessions:
        options = SessionOptions(unproven=allows_unproven(args.allow))
        outcome = entered(ranks.pids, options, ranks.say, owned=True)
        clients = {rank: sessions.enter_context(each) for rank, each in outcome.done.items()}
        outcome.refuse_any()
        if ranks.launched:
            client = ready_to_tune(clients, for_s, ranks.say)
            narrate(f"tuning all {len(clients)} ranks, timed on {named(client.facts.pid)}")
        else:
            client = clients[pid]
            judge_first(client, for_s, narrate, NARRATOR.status)
        for each in clients.values():
            each.ask(OwnSession(False))  # from here on something may be kept: it stays when the command ends
        spent_s = time.monotonic() - began_s
        left_s = max(LEAST_S, for_s - spent_s)
        if args.for_s is not None:
            narrate(f"{left_s:.0f} s for trials; confirming may take {left_s / 4:.0f} s more")
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
            narrate("stopping: the current trial is reverted; what was kept before it stays applied")
            narrate(f"autobrrr detach {pid} reverts it; no recipe is written")
            raise
        advised = [] if only else _advice(client)
        for each in () if tuning.kept else clients.values():
            if each.started:  # it has nothing to do any more, and would take its part of the CPUs
                each.ask(OwnSession(True))
    proven = recipe.from_tuning(tuning) if tuning.proven else None
    again = "the remedies stay applied; tune again with another file"
    tuning = _with_recipe(tuning, proven, args.recipe, again)
    NARRATOR.clear()
    if args.json:
        print(to_json(tuning), flush=True)
    else:
        show(tuning_text(tuning, columns()))
    for line in beyond(advised, tuning):
        narrate(line)
    if tuning.kept:
        narrate(f"kept remedies stay applied; autobrrr detach {pid} reverts them")
    if not args.json:
        best = next((each for each in advised if each.reach == "edit"), None)
        NARRATOR.next_step(after_tuning(tuning, pid, list(map(str, procfs.cmdline(pid))), best))
    return EXIT_GUARD_UNDID if tuning.guard_undid else EXIT_DONE


def _is_script(args: argparse.Namespace) -> bool:
    """Whether a command is given, not a process.

    Raises:
        UsageError: options of a script, and no command.
    """
    words: list[str] = args.target
    if words and any(number(word) is None or word.startswith("-") for word in words):
        return True
    given = next((name for name in args.of_a_script if getattr(args, name)), None)
    if given is not None:
        written = f"--{given.replace('_', '-')}"
        why = f"{written} is for a script that is started, and no command is given"
        hint = f"autobrrr tune {written} … -- python train.py"
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
        return client.ask(TakeSnapshot()).advice
    except AutobrrrError:
        return []


def _say_progress(progress: TuneProgress) -> None:
    left_s = (progress.budget_ns - progress.elapsed_ns) / 1e9
    subject = f"{progress.text.partition(' ')[0]} {progress.remedy} {progress.options}"  # not its figures
    NARRATOR.status(progress_line(progress), left_s, subject=subject)


def _with_recipe(tuning: Tuning, found: Recipe | None, file: Path | None, hint: str = "") -> Tuning:
    """Write what was proven, where a file is named."""
    if file is None:
        return tuning
    if found is None:
        kept = "what was kept was not confirmed" if tuning.kept else "nothing was proven faster"
        narrate(f"no recipe is written: {kept}")
        return tuning
    from autobrrr import recipe

    write_file(file, recipe.dump(found), hint)
    return msgspec.structs.replace(tuning, recipe=str(file))


def _add_script_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that only a script takes."""
    group = parser.add_argument_group("only with -- CMD… (a script that is started repeatedly)")
    varied = (
        "what to vary: --batch-size=int:8..512:log, env:OMP_NUM_THREADS=choice:1,2, or a remedy;"
        " a range is tried at up to 16 values (default: autobrrr proposes a space)"
    )
    flag(group, "--param SPEC", varied, action="append")
    most = "maximum number of trials (default: every point of up to 24, else a quarter, at most 40)"
    flag(group, "--trials N", most)
    group.add_argument("-y", "--yes", action="store_true", help="accept the proposed space")
    flag(group, "--allow-writes", "run trials without the sandbox: they may write anywhere")
    flag(group, "--no-network", "trials reach nothing but a loopback of their own")
    flag(group, "--keep-output DIR", "save the files that the winner's last trial wrote")
    flag(group, "--launcher WORDS", "put before the command: torchrun …")
    flag(group, "--html FILE", "write a report page too")
    # argparse takes a word that begins with a dash for a value only where it looks like a negative number.
    parser._negative_number_matcher = SPEC
    shared = (
        "share the study with other machines that run the same command:"
        " postgresql://USER@HOST/DATABASE or sqlite:///FILE"
    )
    flag(group, "--storage URL", shared)
    flag(group, "--study NAME", "name of the study in --storage (default: made from the command)")
    parser.set_defaults(of_a_script=[action.dest for action in group._group_actions])
    parser.add_argument("command", nargs="*", help=argparse.SUPPRESS)


def _study(args: argparse.Namespace, words: list[str]) -> int:
    """Tune a script.

    Raises:
        UsageError: the arguments can't be read.
        AutobrrrError: the command can't be measured.
    """
    from autobrrr.relaunch.search.argparse_flags import declared_flags
    from autobrrr.relaunch.search.param_specs import parse_parameter
    from autobrrr.relaunch.search.search_space import make_space
    from autobrrr.relaunch.search.study_storage import address, connect
    from autobrrr.relaunch.study.command_refusals import refuse_elsewhere
    from autobrrr.relaunch.study.study import BUDGET_NS, Study
    from autobrrr.relaunch.trial.trial_factory import TrialFactory
    from autobrrr.report.pages.study_page import study_page
    from autobrrr.tuner.candidate_space import allowed_classes

    command = [*words_of("--launcher", args.launcher or ""), *words]
    refuse_elsewhere(command)
    shared = None if args.storage is None else connect(address(args.storage))  # before anything starts
    allowed = allowed_classes(args.allow)
    declared = declared_flags(command)
    given = [parse_parameter(spec, command, os.environ, declared) for spec in args.param or ()]
    space = make_space(given, command, declared, allowed) if given else None
    keep = None if args.keep_output is None else _output_folder(args.keep_output)
    with TrialFactory(
        command=tuple(command),
        folder=Path.cwd(),
        environment=os.environ,
        runtime=paths.runtime_dir(),
        walled=not args.allow_writes,
        kept=keep,
        network=not args.no_network,
    ) as stable:
        if not args.no_network:
            narrate(NETWORK)
        base = None
        if space is None:
            base, parameters = _proposal(stable, command, declared, allowed, yes=args.yes)
            space = make_space(parameters, command, declared, allowed)
        stable.space = space
        search = _search(args, command, space, shared)
        count = len(space.points())
        narrate(f"besides the unmodified command, points: {count}, trials: {search.most} at most")
        if args.for_s is not None:
            narrate("a trial that has begun is brought to its end, so --for may be passed by one trial")
        course = Study(
            stable=stable,
            space=space,
            search=search,
            budget_ns=BUDGET_NS if args.for_s is None else int(args.for_s * 1e9),
            keep_output=keep,
            on_progress=_say_progress,
            on_trial=lambda trial: narrate(f"{trial.remedy}: {trial.why}"),
        )
        try:
            tuning, found = course.run(base)
        except KeyboardInterrupt:
            NARRATOR.clear()
            narrate("stopped; all trials have ended. Run the same command again to resume")
            raise
    tuning = _with_recipe(tuning, found, args.recipe)
    deliver(args, tuning, study_page(tuning), width=columns())
    if not args.json:
        NARRATOR.next_step(after_tuning(tuning, None, command))
    return EXIT_DONE


def _search(args: argparse.Namespace, command: list[str], space: Space, shared: Storage | None) -> Search:
    """The study: shared with other machines, else of this one and its visible devices alone."""
    from autobrrr.relaunch.search.point_search import Search, study_name
    from autobrrr.relaunch.search.study_storage import address, connect

    if shared is not None:
        name = args.study or study_name(command, Path.cwd(), space)
        search = Search(space, storage=shared, name=name, trials=args.trials)
        counts = f"{len(search.results)} trials done, {search.elsewhere} running elsewhere"
        narrate(f"study {name} in {shared.shown}: {counts}")
        return search
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    here = (str(Path.cwd()), command[0], space.base, socket.gethostname(), devices)
    name = study_name(command, Path.cwd(), space, here)
    place = paths.state_dir() / "studies"
    try:
        paths.make_closed(place)
        own = connect(address(f"sqlite:///{place / 'studies.db'}"))
        search = Search(space, storage=own, name=name, stays=False, trials=args.trials)
    except (AutobrrrError, OSError) as error:
        narrate(f"the study is kept in memory: {error}")
        search = Search(space, trials=args.trials)
    if search.results:
        narrate(f"resuming a study that has {len(search.results)} trials")
    return search


def _refuse(args: argparse.Namespace) -> None:
    """What does not go together, before minutes are spent."""
    for name, written in OF_A_JOB.items():
        if getattr(args, name) is not None:
            raise UsageError(f"{written} works only with a PID, not with -- CMD")
    if args.study is not None and args.storage is None:
        raise UsageError("--study needs --storage")
    if args.no_network and args.allow_writes:
        raise UsageError("--no-network is a wall of the sandbox; --allow-writes runs without one")
    if args.trials is not None and args.trials < 1:
        raise UsageError(f"--trials {args.trials} is too few: write 1 or more")
    if args.keep_output is not None and args.allow_writes:
        raise UsageError("--keep-output saves files from the sandbox; --allow-writes runs without one")
    check_places(args.recipe, args.html)


def _output_folder(folder: Path) -> Path:
    """Where output is kept, made if it is not there: absolute, for who copies works in another folder.

    Raises:
        UsageError: it can't be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep-output {folder}: {error.strerror}") from None
    return folder.resolve()


def _proposal(
    stable: TrialFactory,
    command: list[str],
    declared: Mapping[str, Declared],
    allowed: tuple[ExactnessClass, ...],
    *,
    yes: bool,
) -> tuple[LiveTrial, list[Parameter]]:
    from autobrrr.relaunch.study.command_refusals import Unmeasurable
    from autobrrr.relaunch.study.propose_space import diagnosis_of, proposed

    asks = sys.stdin.isatty() and sys.stderr.isatty()
    if not yes and not asks:
        raise UsageError(
            "no --param is given, and no terminal to ask on", "name what to vary with --param, or add -y"
        )
    narrate("no --param is given: proposing what to vary")
    NARRATOR.status("measuring the unmodified command")
    base = stable.start()
    if not base.warm_up() and base.ending is not None:
        raise Unmeasurable(base.ending)
    diagnosis, facts = diagnosis_of(base), base.witnesses.facts
    if diagnosis is not None and diagnosis.regime != "unknown":
        narrate(f"regime: {diagnosis.regime}; {diagnosis.reason}")
    parameters = proposed(
        command=command,
        env=os.environ,
        declared=declared,
        advice=() if diagnosis is None else diagnosis.advice,
        allowed=allowed,
        cores=len(os.sched_getaffinity(0)),
        cuda=facts is not None and facts.is_asynchronous,
    )
    if not parameters:
        raise AutobrrrError("found nothing to vary for this script", "name what to vary with --param")
    for each in parameters:
        levels = ", ".join("as given" if level is None else str(level) for level in each.levels)
        narrate(f"proposed: {each.name}: {levels}")
    if not yes:
        NARRATOR.clear()
        print("autobrrr: continue? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError("the proposed space was not accepted", "name what to vary with --param")
    return base, parameters
