"""`autobrrr run -- CMD…`: start a script unedited, with the agent preloaded and a recipe applied.

The command runs in our process group with our standard streams; its exit code is ours.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autobrrr import paths
from autobrrr.attach.preload import preload_outcome, preloaded_agent
from autobrrr.cli.printed import NARRATOR, narrate
from autobrrr.cli.verb_arguments import flag
from autobrrr.errors import EXIT_DONE, EXIT_USAGE, UsageError
from autobrrr.readable import Foreign

if TYPE_CHECKING:
    from autobrrr.recipe.recipe_contents import Measured

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_WATCHED = {signal.SIGCHLD, *_FORWARDED}
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # by ours, at its start: no command shall inherit it
_SI_KERNEL = 0x80  # sent by a terminal: to the whole group, the command has it already
_LOOK_S = 0.2


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--recipe FILE", "the recipe to apply")
    flag(parser, "--strict", "end with an error if a remedy can't be applied")
    flag(parser, "--json", "print one JSON object at the end")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command to start")


def run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("no command is given", "autobrrr run [--recipe FILE] -- python train.py")
    order = Order(plan=None, command=command, variables={})
    if args.recipe is not None:
        order = _with_recipe(args.recipe, command, strict=args.strict)
    with _unbroken() as earlier:
        prepared = preloaded_agent.prepare(order.plan, {**os.environ, **order.variables}, paths.runtime_dir())
        try:
            pid, code, told = _supervise(prepared, order, earlier, strict=args.strict, quiet=args.json)
        finally:
            prepared.remove()
        if args.json:
            final = {"schema": 1, "pid": pid, "exit_code": code}
            print(json.dumps({**final, "remedies": told.remedies, "step_ns": told.step_ns}), flush=True)
            return code
        # These bring records, which --help need not.
        from autobrrr.attach.job_roles import is_launcher_command
        from autobrrr.report.next_step import after_run
        from autobrrr.report.text.run_text import speed_reached

        reached = speed_reached(told.step_ns, order.evidence)
        if reached is not None:
            narrate(reached)
    if code == EXIT_DONE:
        applied = any(line["status"] == "applied" for line in told.remedies)
        recipe = str(args.recipe) if order.flags or order.variables or applied else None
        timed = reached is not None or not order.planned
        has_ranks = is_launcher_command([Foreign(word) for word in command])
        NARRATOR.next_step(after_run(command, recipe, timed=timed, has_ranks=has_ranks))
    return code


@contextmanager
def _unbroken() -> Iterator[set[signal.Signals]]:
    """No signal ends us while the run's folder is there; gives the mask that the command starts with.

    What comes after the command has ended was meant for it, and is dropped: our exit code is the command's.
    """
    earlier = {signal.Signals(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)}
    try:
        yield earlier
    finally:
        while signal.sigtimedwait(_WATCHED, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to start, with which variables, and what its agents apply."""

    plan: dict[str, object] | None
    command: list[str]
    variables: dict[str, str]
    evidence: Measured | None = None
    flags: bool = False  # whether the recipe gave the command some
    planned: tuple[str, ...] = ()  # remedies that the agents try to apply


def _with_recipe(file: Path, command: list[str], *, strict: bool) -> Order:
    """The plan for the agent, the command with the recipe's flags, the variables it starts with.

    Raises:
        UsageError: the recipe is not valid, or (`strict`) does not fit this machine or script.
    """
    from autobrrr import recipe
    from autobrrr.report.text.run_text import begun_with

    loaded = recipe.load(file)
    script = recipe.script_of(command)
    now = recipe.here(script, recipe.program_of(command))
    unfit = recipe.misplaced(command, loaded.args) | recipe.overruled(command, loaded.env)
    no_agent = recipe.unreached(command)
    said = [] if no_agent is None else [f"no remedy is applied: {no_agent}"]
    said += [*recipe.misfits(loaded, now), *(f"{name} is left out: {why}" for name, why in unfit.items())]
    for misfit in said:
        if strict:
            raise UsageError(f"{file}: {misfit}", "drop --strict to apply the rest")
        narrate(f"{file}: {misfit}")
    left_out = recipe.unavailable(loaded, now)
    flags = {flag: value for flag, value in loaded.args.items() if flag not in unfit}
    plan = recipe.plan(loaded, left_out)
    if script is not None:
        plan["script"] = None  # it has been looked at; else each process that trains compares itself
    variables = recipe.environment(loaded, os.environ, left_out)
    variables = {name: value for name, value in variables.items() if name not in unfit}
    if (begun := begun_with(loaded, flags, variables, left_out)) is not None:
        narrate(begun)
    return Order(
        plan=plan,
        planned=tuple(each.remedy for each in loaded.remedies if each.remedy not in left_out),
        command=recipe.with_flags(command, flags),
        variables=variables,
        evidence=loaded.evidence,
        flags=bool(flags),
    )


def _supervise(
    prepared: preloaded_agent.Prepared, order: Order, mask: set[signal.Signals], *, strict: bool, quiet: bool
) -> tuple[int, int, preload_outcome.PreloadOutcome]:
    """Start it, and watch it to its end: its pid, its exit code, and what its agents have reported."""
    command = order.command
    try:
        pid = os.posix_spawnp(
            command[0], command, prepared.environment, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON
        )
    except OSError as error:
        raise UsageError(f"{command[0]} can't be started: {error.strerror}") from None
    told = preload_outcome.PreloadOutcome(prepared.folder, pid, order.planned)
    status, refused = _watch(pid, told, strict=strict, quiet=quiet)
    code = os.waitstatus_to_exitcode(status)
    code = 128 - code if code < 0 else code
    return pid, EXIT_USAGE if strict and refused else code, told


def _watch(pid: int, told: preload_outcome.PreloadOutcome, *, strict: bool, quiet: bool) -> tuple[int, bool]:
    """Pass signals on and outcomes to the user until the command has ended."""
    refused = False
    while True:
        came = signal.sigtimedwait(_WATCHED, _LOOK_S)
        if came is not None and came.si_signo in _FORWARDED and came.si_code != _SI_KERNEL:
            os.kill(pid, came.si_signo)
        ended, status = os.waitpid(pid, os.WNOHANG)
        fresh = told.news()
        if ended and os.waitstatus_to_exitcode(status) == 0:
            fresh += told.missed()  # of a command that failed itself this says nothing
        for line in fresh:
            why = f": {line['why']}" if line.get("why") else ""
            if line.get("class") not in (None, "bitwise"):
                why = f" (class: {line['class']}){why}"
            if not quiet:
                narrate(f"{line['status']} {line['remedy']}{why}")
            if line["status"] == "refused":
                if strict and not refused and not ended:
                    os.kill(pid, signal.SIGTERM)
                refused = True
        if ended:
            return status, refused
