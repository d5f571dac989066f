"""Runs whose work is counted: untimed, in sequence, from one seed, until they end or are long enough.

In: how each is started. Out: an account of each. Alone, none waits for another's threads, and none takes the
memory that another needs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from autobrrr.attach.preload.preloaded_agent import Audit
from autobrrr.errors import AutobrrrError
from autobrrr.prove.run_account import RunAccount
from autobrrr.relaunch.study.command_refusals import Unmeasurable
from autobrrr.relaunch.trial.live_trial import LiveTrial
from autobrrr.relaunch.trial.trial_endings import TrialEnding
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from autobrrr.relaunch.trial.trial_launch import TrialLaunch

LOOK_S = 0.05
NO_STEPS = TrialEnding(kind="no_steps", why="no update by a torch optimizer was seen")
LEAST_COMPARED = 16  # steps of each side; of fewer nothing is concluded, unless the runs end before
PATIENCE = 10  # times the time that is given, until there are as many


def accounts_of(
    factory: TrialFactory,
    launches: Sequence[tuple[str, TrialLaunch]],
    time_s: float,
    tell: Callable[[str], None] = lambda line: None,
    least: int = LEAST_COMPARED,
) -> list[RunAccount]:
    """Run the first until it has ended, or for its share of the time; each other one for as many steps.

    Args:
        least: Steps for which a run is given some times as long.
        launches: Each with what it is called in errors.

    Raises:
        Unmeasurable: one fails, or does not train.
        AutobrrrError: one trains in several processes.
    """
    offset = secrets.randbelow(1 << 16)  # the script can't know which steps are looked at more closely
    accounts: list[RunAccount] = []
    enough: int | None = None
    for side, launch in launches:
        account = RunAccount(file=factory.home / secrets.token_hex(6))
        trial = factory.begin(replace(launch, audit=Audit(file=account.file, offset=offset)))
        trial.witnesses.rest()
        try:
            _watch(trial, account, tell, time_s=time_s, least=least, enough=enough)
            ending = trial.ending  # closing ends what still runs
        finally:
            trial.close()
        account.look()
        account.ended = ending is not None and ending.code == 0
        _refuse(side, account, ending, trial.lines)
        if enough is None:  # one more shows whether the others go on where the first has ended
            enough = len(account.steps) + account.ended
        accounts.append(account)
    return accounts


def _refuse(side: str, account: RunAccount, ending: TrialEnding | None, lines: tuple[str, ...]) -> None:
    """Raises where a run says nothing of the work of its side."""
    if account.processes > 1:
        raise AutobrrrError(
            f"{side} trains in {account.processes} processes: what the others do would not be counted",
            "prove it with one process",
        )
    if ending is not None and ending.code != 0:
        raise Unmeasurable(ending, side)
    if account.noted("broken") and not account.steps:
        raise AutobrrrError(f"the work of {side} can't be counted: {account.noted('broken')[0]}")
    if not account.steps:
        raise Unmeasurable(replace(NO_STEPS, lines=lines), side)


def _watch(
    trial: LiveTrial,
    account: RunAccount,
    tell: Callable[[str], None],
    *,
    time_s: float,
    least: int,
    enough: int | None,
) -> None:
    """Watch a run until it has `enough` steps. Without a number: for its time, or until it has the least."""
    began_s: float | None = None
    while trial.ending is None and not account.noted("broken") and account.processes < 2:
        trial.look()
        account.look()
        count = len(account.steps)
        if began_s is None and count:
            began_s = time.monotonic()
        long_s = time_s if enough is None and count >= least else PATIENCE * time_s
        if count and count >= (enough or count + 1):
            return
        if began_s is not None and time.monotonic() > began_s + long_s:
            return
        tell(f"counting the work of both: {count} steps")
        time.sleep(LOOK_S)
