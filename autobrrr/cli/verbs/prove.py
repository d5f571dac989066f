"""`autobrrr prove`: is a script faster after a change, and does it still do the same work?

Two commands, a recipe, two revisions of a repository, or two lists of packages. Nothing of the user's is
changed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autobrrr import paths
from autobrrr.cli.printed import NARRATOR, check_places, deliver, narrate, write_file
from autobrrr.cli.verb_arguments import flag, last_words_said, words_of
from autobrrr.errors import EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, UsageError

if TYPE_CHECKING:
    from autobrrr.prove.referee import Question
    from autobrrr.records.proof_records import Proof
    from autobrrr.relaunch.trial.live_trial import TrialLaunch
    from autobrrr.relaunch.trial.trial_factory import TrialFactory

    Ask = Callable[..., Question]  # gets both sides, and what tells them apart

GATE = re.compile(r"slower:(\d+(?:\.\d+)?)%")
DEFAULT_S, LEAST_S = 120.0, 10.0
SETTLE_S = 8.0  # turns of neighbours are compared: on a busy machine step times needn't come to rest


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--before CMD", "the command as it was, in quotes")
    flag(parser, "--after CMD", "the command that is said to be faster, in quotes")
    flag(parser, "--recipe FILE", "after: -- CMD with this recipe")
    flag(parser, "--git BASE..HEAD", "before and after: -- CMD in two revisions of this repository")
    packages = "twice: -- CMD with the packages of each of two requirements files"
    flag(parser, "--env FILE", packages, action="append")
    flag(parser, "--gate slower:N%", "accept what is slower by no more (default: it must be faster)")
    budget = "time budget (default 2m); two fresh starts are made and counted however long they take"
    flag(parser, "--for D", budget, default=DEFAULT_S)
    classes = "widest difference of results: bitwise, rounding (default), stream, changes-training"
    flag(parser, "--allow CLASS", classes)
    flag(parser, "--json", "print one JSON object at the end")
    flag(parser, "--markdown FILE", "write a comment for a pull request")
    flag(parser, "--junit FILE", "write a JUnit report for CI")
    flag(parser, "--html FILE", "write a report page")
    flag(parser, "--allow-writes", "run without the sandbox: the script may write anywhere")
    parser.add_argument(
        "command", nargs="*", metavar="-- CMD", help="the command, with --recipe, --git or --env"
    )


def run(args: argparse.Namespace) -> int:
    gate = None if args.gate is None else _gate(args.gate)
    check_places(args.markdown, args.junit, args.html)
    if args.for_s < LEAST_S:
        raise UsageError(f"--for is too short: {LEAST_S:.0f}s at least")
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a CI job that is cancelled
    try:
        proof = _proof(args, gate)
    finally:
        signal.signal(signal.SIGTERM, earlier)
    _write(args, proof)
    return {"refused": EXIT_REFUSED, "not_proven": EXIT_FAILED}.get(proof.verdict, EXIT_DONE)


def _proof(args: argparse.Namespace, gate: float | None) -> Proof:
    from autobrrr.prove.referee import Question, prove
    from autobrrr.relaunch.study.command_refusals import Unmeasurable
    from autobrrr.relaunch.trial.live_trial import Limits
    from autobrrr.relaunch.trial.trial_factory import TrialFactory
    from autobrrr.tuner.candidate_space import allowed_classes

    allowed = allowed_classes(args.allow)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="tmp", dir=paths.temporary_dir()))
        factory = stack.enter_context(
            TrialFactory(
                command=(),
                folder=Path.cwd(),
                environment=os.environ,
                runtime=Path(place) / "r",
                walled=not args.allow_writes,
                limits=Limits(settle_s=SETTLE_S),
            )
        )
        ask = partial(Question, allowed=allowed, gate=gate, budget_ns=int(args.for_s * 1e9))
        question = _question(args, factory, Path(place), ask)
        try:
            with last_words_said():
                return prove(question, factory, _say_stage)
        except Unmeasurable:
            if args.git is not None:
                narrate("files that are not tracked are in neither revision: name them by an absolute path")
            raise


def _say_stage(line: str) -> None:
    """Progress: the stage stands before the colon."""
    NARRATOR.status(line, subject=line.partition(":")[0])


def _question(args: argparse.Namespace, factory: TrialFactory, place: Path, ask: Ask) -> Question:
    """What is asked, once it is known how both sides are started.

    Raises:
        UsageError: the arguments name none, or more than one pair.
    """
    ways = [args.before is not None or args.after is not None, args.recipe is not None]
    ways += [args.git is not None, args.env is not None]
    if sum(ways) != 1:
        raise UsageError(
            "name one pair",
            "--before CMD --after CMD, or -- CMD with --recipe FILE, --git BASE..HEAD or twice --env FILE",
        )
    if ways[0]:
        if args.before is None or args.after is None or args.command:
            raise UsageError("--before CMD and --after CMD go together, without a command behind --")
        words = [words_of("--before", args.before), words_of("--after", args.after)]
        return ask(before=_launch(words[0], factory), after=_launch(words[1], factory))
    if not args.command:
        raise UsageError("no command is given", "autobrrr prove --recipe FILE -- python train.py")
    as_given = _launch(args.command, factory)
    if args.recipe is not None:
        names = ("without a recipe", f"with {args.recipe}")
        return ask(before=as_given, after=_with_recipe(args.recipe, as_given), names=names)
    if args.env is not None:
        return _with_packages(args.env, as_given, ask)
    from autobrrr.prove.revision_folders import revisions

    base, head = revisions(args.git, Path.cwd(), place, narrate)
    return ask(
        before=base.launch(as_given),
        after=head.launch(as_given),
        repository=base.top,
        names=(base.name, head.name),
    )


def _launch(words: list[str], factory: TrialFactory) -> TrialLaunch:
    from autobrrr.relaunch.study.command_refusals import refuse_elsewhere
    from autobrrr.relaunch.trial.live_trial import TrialLaunch

    if not words:
        raise UsageError("a command is empty")
    refuse_elsewhere(words)
    env = {"PYTHONHASHSEED": "0", **factory.variables()}
    return TrialLaunch(command=tuple(words), environment=env, folder=Path.cwd())


def _with_recipe(file: Path, given: TrialLaunch) -> TrialLaunch:
    from autobrrr import recipe
    from autobrrr.relaunch.trial.trial_factory import with_recipe

    found = recipe.load(file)
    missing = recipe.unavailable(found, recipe.here()) | recipe.misplaced(given.command, found.args)
    missing |= recipe.overruled(given.command, found.env)
    if missing:
        name, why = next(iter(missing.items()))
        raise UsageError(f"{file}: {name}: {why}", "prove a recipe that holds what can be had here")
    return with_recipe(given, found)


def _with_packages(files: Sequence[Path], given: TrialLaunch, ask: Ask) -> Question:
    from autobrrr.prove.locked_environments import locked_environment, package_changes, python_of

    if len(files) != 2:
        raise UsageError("--env goes twice: before, and after", "--env before.txt --env after.txt -- CMD")
    python, *words = given.command
    made = [locked_environment(file, python, paths.cache_dir(), narrate) for file in files]
    before, after = (
        replace(
            given,
            command=(str(python_of(each)), *words),
            environment={**given.environment, "PATH": f"{each}/bin:{given.environment.get('PATH', '')}"},
        )
        for each in made
    )
    changes = package_changes(made[0], made[1])
    return ask(before=before, after=after, packages=changes, names=[str(file) for file in files])


def _gate(text: str) -> float:
    found = GATE.fullmatch(text)
    if found is None or not 0 < float(found.group(1)) < 100:
        raise UsageError(f"--gate {text}: not a gate", "write slower:3%")
    return float(found.group(1)) / 100


def _write(args: argparse.Namespace, proof: Proof) -> None:
    from autobrrr.report.next_step import after_proof
    from autobrrr.report.pages.proof_page import proof_junit, proof_markdown, proof_page

    for file, text in ((args.markdown, proof_markdown), (args.junit, proof_junit)):
        if file is not None:
            write_file(file, text(proof))
    deliver(args, proof, proof_page(proof))
    NARRATOR.next_step(after_proof(proof))
