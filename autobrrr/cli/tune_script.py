"""`autobrrr tune [--param SPEC]… -- CMD…`: start a script again and again, and write down what makes it
faster.

The script is never edited; its files are as they were afterwards, unless `--allow-writes` is given.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path

import msgspec

from autobrrr import paths
from autobrrr.cli.target import narrate
from autobrrr.errors import EXIT_DONE, AutobrrrError, UsageError
from autobrrr.records import ExactnessClass, Trial, TuneProgress, Tuning, to_json

SPEC = re.compile(r"-[^=]*=(int|float|choice):")
NOT_HERE = {"horizon_s": "--horizon", "only": "--only"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that only a script takes."""
    group = parser.add_argument_group("for a script that is started again and again")
    group.add_argument(
        "--param",
        action="append",
        metavar="SPEC",
        help="what to vary: --batch-size=int:8..512:log, env:OMP_NUM_THREADS=choice:1,2, or a remedy;"
        " ranges are tried at up to 16 levels; without any a space is proposed",
    )
    group.add_argument("--trials", type=int, metavar="N", help="at most so many (default: all of up to 24)")
    group.add_argument("-y", "--yes", action="store_true", help="take the space that is proposed")
    group.add_argument("--allow-writes", action="store_true", help="let trials write where they want")
    group.add_argument("--keep-output", type=Path, metavar="DIR", help="files of the winner's last trial")
    group.add_argument("--launcher", metavar="WORDS", help="what stands before the command: torchrun …")
    group.add_argument("--html", type=Path, metavar="FILE", help="also write a report")
    # argparse takes a word that begins with a dash for a value only where it looks like a negative number.
    parser._negative_number_matcher = SPEC
    group.add_argument("--storage", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help=argparse.SUPPRESS)


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Tune a script.

    Raises:
        UsageError: the arguments contradict each other, or can't be read.
        AutobrrrError: the command can't be measured.
    """
    _refuse(args)
    from autobrrr.relaunch.flags import declared_flags
    from autobrrr.relaunch.space import make_space
    from autobrrr.relaunch.specs import parse_parameter
    from autobrrr.relaunch.trials import Stable
    from autobrrr.tuner.space import allowed_classes

    allowed = allowed_classes(args.allow)
    command = [*shlex.split(args.launcher or ""), *words]
    declared = declared_flags(command)
    given = [parse_parameter(spec, command, os.environ, declared) for spec in args.param or ()]
    space = make_space(given, command, declared, allowed) if given else None
    if args.keep_output is not None:
        args.keep_output.mkdir(parents=True, exist_ok=True)
    with Stable(
        command=tuple(command),
        folder=Path.cwd(),
        environment=os.environ,
        runtime=paths.runtime_dir(),
        cache=paths.cache_dir(),
        walled=not args.allow_writes,
        open_folders=() if args.keep_output is None else (args.keep_output,),
    ) as stable:
        base = None
        if space is None:
            base, parameters = _proposal(stable, command, allowed, yes=args.yes)
            space = make_space(parameters, command, declared, allowed)
        stable.space = space
        from autobrrr.relaunch.course import BUDGET_NS, Course, Listener
        from autobrrr.relaunch.search import Search, study_file

        try:
            journal = study_file(paths.state_dir(), command, Path.cwd(), space)
        except OSError as error:
            narrate(f"the study can't be kept in {paths.state_dir()}: {error.strerror}; it stays in memory")
            journal = None
        search = Search(space, trials=args.trials, journal=journal)
        count = len(space.points())
        narrate(f"{count} points beside the command as given, at most {search.most} trials")
        if search.results:
            narrate(f"goes on with a study that was cut off after {len(search.results)} trials")
        lines = _Lines()
        course = Course(
            stable=stable,
            space=space,
            search=search,
            budget_ns=BUDGET_NS if args.for_s is None else int(args.for_s * 1e9),
            keep_output=args.keep_output,
            listener=Listener(on_progress=lines.progress, on_trial=lines.trial),
        )
        try:
            tuning, found = course.run(base)
        except KeyboardInterrupt:
            narrate("stopped, nothing of it runs on; the same command goes on where it was")
            raise
    return _tell(args, tuning, found)


def _tell(args: argparse.Namespace, tuning: Tuning, found: object) -> int:
    from autobrrr import recipe
    from autobrrr.report.relaunch import relaunch_table
    from autobrrr.report.relaunch_html import relaunch_html

    if args.recipe is not None and isinstance(found, recipe.Recipe):
        _write(args.recipe, recipe.dump(found))
        tuning = msgspec.structs.replace(tuning, recipe=str(args.recipe))
    elif args.recipe is not None:
        narrate("no recipe written: nothing was proven")
    if args.html is not None:
        _write(args.html, relaunch_html(tuning))
    print(to_json(tuning) if args.json else relaunch_table(tuning), flush=True)
    return EXIT_DONE


def _refuse(args: argparse.Namespace) -> None:
    """What does not go together, before minutes are spent."""
    for name, flag in NOT_HERE.items():
        if getattr(args, name) is not None:
            raise UsageError(f"{flag} is for a job that runs, not for a script that is started again")
    if args.storage is not None:
        raise UsageError("--storage is not built yet", "leave it out: the study is kept in a journal file")
    if args.trials is not None and args.trials < 1:
        raise UsageError(f"--trials {args.trials}: at least 1")
    if args.keep_output is not None and args.allow_writes:
        raise UsageError("--keep-output has nothing to keep where --allow-writes lets the script write")
    for file in (args.recipe, args.html):
        if file is not None and (file.is_dir() or not file.parent.is_dir()):
            raise UsageError(f"{file}: {'a folder' if file.is_dir() else f'no folder {file.parent}'}")


def _proposal(stable: object, command: list[str], allowed: tuple[ExactnessClass, ...], *, yes: bool) -> tuple:  # type: ignore[type-arg]
    from autobrrr.relaunch import propose
    from autobrrr.relaunch.course import unmeasurable
    from autobrrr.relaunch.flags import declared_flags
    from autobrrr.relaunch.trials import Stable

    assert isinstance(stable, Stable)
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    if not yes and not asks:
        raise UsageError("no --param is given, and there is nobody to ask", "name what to vary, or give -y")
    narrate("no --param is given: looking at the command as it is")
    base = stable.start()
    if not base.warm_up() and base.ending is not None:
        raise unmeasurable(base.ending)
    cuda = base.witnesses.facts is not None and base.witnesses.facts.cuda
    verdict = propose.diagnosis_of(base)
    if verdict is not None:
        narrate(f"regime: {verdict.regime} ({verdict.confidence}); {verdict.reason}")
    parameters = propose.proposed(
        command=command,
        env=os.environ,
        declared=declared_flags(command),
        advice=() if verdict is None else verdict.advice,
        allowed=allowed,
        cores=len(os.sched_getaffinity(0)),
        cuda=cuda,
    )
    if not parameters:
        raise AutobrrrError("nothing can be proposed for this script", "name what to vary with --param")
    for each in parameters:
        levels = ", ".join("as given" if level is None else str(level) for level in each.levels)
        narrate(f"would vary {each.name}: {levels}")
    if not yes:
        print("autobrrr: go on? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError("the proposed space was not taken", "name what to vary with --param")
    return base, parameters


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        raise AutobrrrError(f"{file} could not be written: {error.strerror}") from None


class _Lines:
    """Progress: one line that is written over on a terminal; else one a trial and stage."""

    def __init__(self) -> None:
        self._stage = ""

    def progress(self, progress: TuneProgress) -> None:
        left = max(0, progress.budget_ns - progress.elapsed_ns) / 1e9
        line = f"[{progress.elapsed_ns / 1e9:.0f} s, {left:.0f} s left] {progress.text}"
        if sys.stderr.isatty():
            print(f"\r\033[K{line[:118]}", end="", file=sys.stderr, flush=True)
        elif progress.stage != self._stage:
            self._stage = progress.stage
            narrate(line)

    def trial(self, trial: Trial) -> None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        narrate(f"{trial.remedy}: {trial.why}")
