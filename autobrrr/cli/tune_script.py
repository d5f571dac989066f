"""`autobrrr tune [--param SPEC]… -- CMD…`: start a script repeatedly, and write down what makes it faster.

The script is never edited; its files are as they were afterwards, unless `--allow-writes` is given.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from autobrrr import paths
from autobrrr.cli.narration import NARRATOR, narrate
from autobrrr.cli.output_file import check_places, write_file
from autobrrr.cli.printed import columns, deliver
from autobrrr.errors import EXIT_DONE, AutobrrrError, UsageError
from autobrrr.records import ExactnessClass, TuneProgress, Tuning

if TYPE_CHECKING:
    from autobrrr.relaunch.search.point_search import Search
    from autobrrr.relaunch.search.search_space import Parameter, Space
    from autobrrr.relaunch.search.study_storage import Storage
    from autobrrr.relaunch.trial.live_trial import LiveTrial
    from autobrrr.relaunch.trial.trial_factory import TrialFactory

SPEC = re.compile(r"-[^=]*=(int|float|choice):")
NETWORK = (
    "trials keep network access: what the script sends, each start sends (--no-network: nothing);"
    " trackers and the Hugging Face hub are off"
)
NOT_HERE = {"horizon_s": "--horizon", "max_loss": "--max-loss", "only": "--only"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that only a script takes."""
    group = parser.add_argument_group("only with -- CMD… (a script that is started repeatedly)")
    group.add_argument(
        "--param",
        action="append",
        metavar="SPEC",
        help="what to vary: --batch-size=int:8..512:log, env:OMP_NUM_THREADS=choice:1,2, or a remedy;"
        " a range is tried at up to 16 values (default: autobrrr proposes a space)",
    )
    group.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="maximum number of trials (default: every point of up to 24, else a quarter, at most 40)",
    )
    group.add_argument("-y", "--yes", action="store_true", help="accept the proposed space")
    group.add_argument(
        "--allow-writes", action="store_true", help="run trials without the sandbox: they may write anywhere"
    )
    group.add_argument(
        "--no-network", action="store_true", help="trials reach nothing but a loopback of their own"
    )
    group.add_argument(
        "--keep-output", type=Path, metavar="DIR", help="save the files that the winner's last trial wrote"
    )
    group.add_argument("--launcher", metavar="WORDS", help="put before the command: torchrun …")
    group.add_argument("--html", type=Path, metavar="FILE", help="write a report page too")
    # argparse takes a word that begins with a dash for a value only where it looks like a negative number.
    parser._negative_number_matcher = SPEC
    group.add_argument(
        "--storage",
        metavar="URL",
        help="share the study with other machines that run the same command:"
        " postgresql://USER@HOST/DATABASE or sqlite:///FILE",
    )
    group.add_argument(
        "--study", metavar="NAME", help="name of the study in --storage (default: made from the command)"
    )
    parser.add_argument("command", nargs="*", help=argparse.SUPPRESS)


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Tune a script.

    Raises:
        UsageError: the arguments contradict each other, or can't be read.
        AutobrrrError: the command can't be measured.
    """
    from autobrrr.relaunch.study.command_refusals import Unmeasurable

    _refuse(args)
    try:
        return _study(args, words)
    except Unmeasurable as refusal:
        for line in refusal.ending.lines:
            narrate(f"  | {line}")
        raise


def _study(args: argparse.Namespace, words: list[str]) -> int:
    from autobrrr.relaunch.search.argparse_flags import declared_flags
    from autobrrr.relaunch.search.param_specs import parse_parameter
    from autobrrr.relaunch.search.search_space import make_space
    from autobrrr.relaunch.study.command_refusals import refuse_elsewhere
    from autobrrr.relaunch.trial.trial_factory import TrialFactory
    from autobrrr.tuner.candidate_space import allowed_classes

    try:
        command = [*shlex.split(args.launcher or ""), *words]
    except ValueError as error:
        raise UsageError(f"--launcher: not a command: {error}") from None
    refuse_elsewhere(command)
    storage = None if args.storage is None else _storage(args.storage)
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
            base, parameters = _proposal(stable, command, allowed, yes=args.yes)
            space = make_space(parameters, command, declared, allowed)
        stable.space = space
        from autobrrr.relaunch.study.study import BUDGET_NS, Study

        search = _own(args, command, space) if storage is None else _shared(args, command, space, storage)
        count = len(space.points())
        narrate(f"{count} points besides the unmodified command, at most {search.most} trials")
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
    return _tell(args, command, tuning, found)


def _storage(url: str) -> Storage:
    """Opened before anything is started."""
    from autobrrr.relaunch.search.study_storage import address, connect

    return connect(address(url))


def _own(args: argparse.Namespace, command: list[str], space: Space) -> Search:
    """A study of this machine and its visible devices alone."""
    from autobrrr.relaunch.search.point_search import Search, study_name

    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    here = (str(Path.cwd()), command[0], space.base, socket.gethostname(), devices)
    name = study_name(command, Path.cwd(), space, here)
    place = paths.state_dir() / "studies"
    try:
        paths.make_closed(place)
        storage = _storage(f"sqlite:///{place / 'studies.db'}")
        search = Search(space, storage=storage, name=name, stays=False, trials=args.trials)
    except (AutobrrrError, OSError) as error:
        narrate(f"the study is kept in memory: {error}")
        search = Search(space, trials=args.trials)
    if search.results:
        narrate(f"resuming a study that has {len(search.results)} trials")
    return search


def _shared(args: argparse.Namespace, command: list[str], space: Space, storage: Storage) -> Search:
    from autobrrr.relaunch.search.point_search import Search, study_name

    name = args.study or study_name(command, Path.cwd(), space)
    search = Search(space, storage=storage, name=name, trials=args.trials)
    counts = f"{len(search.results)} trials done, {search.elsewhere} running elsewhere"
    narrate(f"study {name} in {storage.address.shown}: {counts}")
    return search


def _tell(args: argparse.Namespace, command: list[str], tuning: Tuning, found: object) -> int:
    from autobrrr import recipe
    from autobrrr.report.pages.study_page import study_page
    from autobrrr.report.text.next_step import after_tuning

    if args.recipe is not None and isinstance(found, recipe.Recipe):
        write_file(args.recipe, recipe.dump(found))
        tuning = msgspec.structs.replace(tuning, recipe=str(args.recipe))
    elif args.recipe is not None:
        narrate("no recipe is written: nothing was proven faster")
    deliver(args, tuning, study_page(tuning), width=columns())
    if not args.json:
        NARRATOR.next_step(after_tuning(tuning, None, command))
    return EXIT_DONE


def _refuse(args: argparse.Namespace) -> None:
    """What does not go together, before minutes are spent."""
    for name, flag in NOT_HERE.items():
        if getattr(args, name) is not None:
            raise UsageError(f"{flag} works only with a PID, not with -- CMD")
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
    stable: TrialFactory, command: list[str], allowed: tuple[ExactnessClass, ...], *, yes: bool
) -> tuple[LiveTrial, list[Parameter]]:
    from autobrrr.relaunch.search.argparse_flags import declared_flags
    from autobrrr.relaunch.study.command_refusals import Unmeasurable
    from autobrrr.relaunch.study.propose_space import diagnosis_of, proposed

    asks = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
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
        declared=declared_flags(command),
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


def _say_progress(progress: TuneProgress) -> None:
    left_s = (progress.budget_ns - progress.elapsed_ns) / 1e9
    line = f"[{progress.elapsed_ns / 1e9:.0f} s, {max(0.0, left_s):.0f} s left] {progress.text}"
    NARRATOR.status(line, subject=progress.stage)
