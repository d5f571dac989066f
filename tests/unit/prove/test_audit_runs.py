"""Runs under account share the CPUs: whose threads would wait for each other go one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from autobrrr.errors import AutobrrrError
from autobrrr.prove import audit_runs
from autobrrr.prove.run_account import AccountedStep, RunAccount
from autobrrr.relaunch.trial.trial_launch import TrialLaunch
from support.accounts import step


class Run:
    """A trial that makes a step in each look while it isn't paused."""

    ending = None

    def __init__(self, account: RunAccount) -> None:
        self.account, self.paused = account, False

    def look(self) -> None:
        if not self.paused:
            self.account.steps.append(cast(AccountedStep, None))

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


@pytest.mark.parametrize(
    ("threads", "cpus", "alone"), [(1, 1, False), (2, 2, True), (2, 5, True), (2, 6, False)]
)
def test_runs_whose_threads_are_more_than_the_cpus_take_turns(
    threads: int, cpus: int, alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cpus)))
    monkeypatch.setattr(audit_runs, "TURN_S", 0.0)
    monkeypatch.setattr(audit_runs, "LOOK_S", 0.001)
    accounts = [RunAccount(file=tmp_path / str(number)) for number in range(3)]
    for account in accounts:
        account.notes.append(("threads", threads, 1))
    runs = [Run(account) for account in accounts]
    running: list[int] = []

    def tell(line: str) -> None:
        running.append(sum(not run.paused for run in runs))

    audit_runs._watch(cast(Any, runs), accounts, 0.2, tell, 16)
    assert set(running[1:]) == ({1} if alone else {3})
    counts = [len(account.steps) for account in accounts]
    assert min(counts) >= 16
    assert max(counts) - min(counts) <= 2


class Started:
    """A trial that writes some lines of its account, and goes on."""

    ending, paused, lines = None, False, ()

    def __init__(self, file: Path, text: bytes) -> None:
        self.witnesses = self
        Path(f"{file}-1").write_bytes(text)

    def rest(self) -> None: ...

    look: Callable[..., None] = rest
    close: Callable[..., None] = rest


def test_an_account_that_stops_while_another_has_not_begun_is_what_is_told(tmp_path: Path) -> None:
    texts = [b"", b"", msgspec.json.encode(step(0)) + b'\n{"note":"broken","what":"an error","step":1}\n']
    launch = TrialLaunch(command=("train",), environment={}, folder=tmp_path)

    class Factory:
        home = tmp_path

        def begin(self, launch: TrialLaunch) -> Started:
            assert launch.audit is not None
            return Started(launch.audit.file, texts.pop(0))

    sides = [(side, launch) for side in ("before", "before", "after")]
    with pytest.raises(AutobrrrError, match="the work of after can't be counted: an error"):
        audit_runs.accounts_of(cast(Any, Factory()), sides, 0.2)
