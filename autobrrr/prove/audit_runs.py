"""Runs under account: untimed, all at one time, from one seed, until they end or there is enough to compare.

In: how each is started. Out: an account of each.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from autobrrr.attach.preload.preloaded_agent import Audit
from autobrrr.prove.run_account import RunAccount
from autobrrr.relaunch.study.command_refusals import Unmeasurable
from autobrrr.relaunch.trial.live_trial import LiveTrial
from autobrrr.relaunch.trial.trial_endings import TrialEnding
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from autobrrr.relaunch.trial.trial_launch import TrialLaunch

LOOK_S = 0.05
LEAST_COMPARED = 16  # steps of each side; of fewer nothing is concluded, unless the runs end before
PATIENCE = 5  # times the time that is given, until there are as many


def accounts_of(
    factory: TrialFactory,
    launches: Mapping[str, TrialLaunch],
    time_s: float,
    tell: Callable[[str], None] = lambda line: None,
) -> list[RunAccount]:
    """Run all at one time until they have ended, or for so long since the last of them began to train.

    Args:
        launches: By what they are called in errors.

    Raises:
        Unmeasurable: one fails, or does not train.
    """
    offset = secrets.randbelow(1 << 16)  # the script can't know which steps are looked at more closely
    accounts: list[RunAccount] = []
    trials: list[LiveTrial] = []
    try:
        for launch in launches.values():
            file = factory.home / secrets.token_hex(6)
            accounts.append(RunAccount(file=file))
            trials.append(factory.begin(replace(launch, audit=Audit(file=file, offset=offset))))
            trials[-1].witnesses.rest()
        _watch(trials, accounts, time_s, tell)
        endings = [trial.ending for trial in trials]  # closing ends what still runs
    finally:
        for trial in trials:
            trial.close()
    for side, trial, account, ending in zip(launches, trials, accounts, endings, strict=True):
        account.look()
        account.ended = ending is not None and ending.code == 0
        if (ending is not None and ending.code != 0) or not account.steps:
            raise Unmeasurable(_ending(side, ending, trial.lines))
    return accounts


def _watch(
    trials: list[LiveTrial], accounts: list[RunAccount], time_s: float, tell: Callable[[str], None]
) -> None:
    all_train_s: float | None = None
    counts = [0]
    while all_train_s is None or time.monotonic() < all_train_s + time_s * (
        1 if min(counts) >= LEAST_COMPARED else PATIENCE
    ):
        for trial, account in zip(trials, accounts, strict=True):
            trial.look()
            account.look()
        counts = [len(account.steps) for account in accounts]
        over = [trial.ending is not None for trial in trials]
        passed = any(done and max(counts) > count for done, count in zip(over, counts, strict=True))
        if all(over) or passed:
            return
        if all_train_s is None and all(counts):
            all_train_s = time.monotonic()
        if any(done and not count for done, count in zip(over, counts, strict=True)):
            return
        tell(f"counting the work of both: {min(counts)} steps")
        time.sleep(LOOK_S)


def _ending(side: str, found: TrialEnding | None, lines: tuple[str, ...]) -> TrialEnding:
    kind = "no_steps" if found is None or found.code == 0 else found.kind
    why = (
        "no update by a torch optimizer was seen"
        if kind == "no_steps"
        else ""
        if found is None
        else found.why
    )
    return TrialEnding(kind=kind, why=f"{side}: {why}", lines=lines)
