"""Runs under account: untimed, side by side, from one seed, until they end or there is enough to compare.

In: how each is started. Out: an account of each.
"""

from __future__ import annotations

import os
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
TURN_S = 0.5
PATIENCE = 10  # times the time that is given, until there are as many


def accounts_of(
    factory: TrialFactory,
    launches: Sequence[tuple[str, TrialLaunch]],
    time_s: float,
    tell: Callable[[str], None] = lambda line: None,
    least: int = LEAST_COMPARED,
) -> list[RunAccount]:
    """Run all until they have ended, or for so long since the last of them began to train.

    They run at one time, unless they have more threads than there are CPUs: threads that wait for each other
    then made 4 s of steps of 45 ms. There the one that is furthest behind runs alone.

    Args:
        least: Steps for which they are given some times as long.
        launches: Each with what it is called in errors.

    Raises:
        Unmeasurable: one fails, or does not train.
        AutobrrrError: one trains in several processes.
    """
    offset = secrets.randbelow(1 << 16)  # the script can't know which steps are looked at more closely
    accounts: list[RunAccount] = []
    trials: list[LiveTrial] = []
    try:
        for _, launch in launches:
            file = factory.home / secrets.token_hex(6)
            accounts.append(RunAccount(file=file))
            trials.append(factory.begin(replace(launch, audit=Audit(file=file, offset=offset))))
            trials[-1].witnesses.rest()
        _watch(trials, accounts, time_s, tell, least)
        endings = [trial.ending for trial in trials]  # closing ends what still runs
    finally:
        for trial in trials:
            trial.close()
    failed: list[tuple[bool, Unmeasurable]] = []
    cut_short = any(not each.steps and end is None for each, end in zip(accounts, endings, strict=True))
    for (side, _), trial, account, ending in zip(launches, trials, accounts, endings, strict=True):
        account.look()
        if account.processes > 1:
            raise AutobrrrError(
                f"{side} trains in {account.processes} processes: what the others do would not be counted",
                "prove it with one process",
            )
        account.ended = ending is not None and ending.code == 0
        if ending is not None and ending.code != 0:
            failed.append((False, Unmeasurable(ending, side)))
        elif account.noted("broken") and (cut_short or not account.steps):
            raise AutobrrrError(f"the work of {side} can't be counted: {account.noted('broken')[0]}")
        elif not account.steps:
            nothing = replace(NO_STEPS, lines=trial.lines)
            failed.append((ending is None, Unmeasurable(nothing, side)))
    if failed:  # the one that ended first: the others had no time to begin
        raise min(failed, key=lambda each: each[0])[1]
    return accounts


def _watch(
    trials: list[LiveTrial],
    accounts: list[RunAccount],
    time_s: float,
    tell: Callable[[str], None],
    least: int,
) -> None:
    all_train_s: float | None = None
    counts = [0]
    turn_until_s = 0.0
    while all_train_s is None or time.monotonic() < all_train_s + time_s * (
        1 if min(counts) >= least else PATIENCE
    ):
        for trial, account in zip(trials, accounts, strict=True):
            trial.look()
            account.look()
        counts = [len(account.steps) for account in accounts]
        over = [trial.ending is not None for trial in trials]
        passed = any(done and max(counts) > count for done, count in zip(over, counts, strict=True))
        lost = any(account.processes > 1 or account.noted("broken") for account in accounts)
        if all(over) or passed or lost:
            return
        if all_train_s is None and all(counts):
            all_train_s = time.monotonic()
        if any(done and not count for done, count in zip(over, counts, strict=True)):
            return
        if are_crowded(accounts) and time.monotonic() > turn_until_s:
            _give_turn(trials, accounts)
            turn_until_s = time.monotonic() + TURN_S
        tell(f"counting the work of both: {min(counts)} steps")
        time.sleep(LOOK_S)


def are_crowded(accounts: Sequence[RunAccount]) -> bool:
    """Whether one of them computes with several threads, and all together have more than there are CPUs."""
    noted = [threads for account in accounts for threads in account.noted("threads") if type(threads) is int]
    threads = max(noted, default=1)
    return threads > 1 and threads * len(accounts) > len(os.sched_getaffinity(0))


def _give_turn(trials: Sequence[LiveTrial], accounts: Sequence[RunAccount]) -> None:
    """The one that is furthest behind goes on, the others stand still."""
    going = [each for each in zip(trials, accounts, strict=True) if each[0].ending is None]
    behind = min(going, key=lambda each: len(each[1].steps))[0]
    for trial, _ in going:
        if trial is not behind and not trial.paused:
            trial.pause()
    if behind.paused:
        behind.resume()
