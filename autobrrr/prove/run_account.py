"""Runs whose work is counted, untimed, in sequence, from one seed; and the account that each writes.

In: how each is started. Out: an account of each, from a file that grows. Alone, no run waits for another's
threads, and none takes the memory that another needs.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from autobrrr.errors import AutobrrrError
from autobrrr.relaunch.study.command_refusals import Unmeasurable
from autobrrr.relaunch.trial.live_trial import LiveTrial, TrialLaunch
from autobrrr.relaunch.trial.trial_endings import TrialEnding
from autobrrr.relaunch.trial.trial_factory import TrialFactory

LOOK_S = 0.05
NO_STEPS = TrialEnding(kind="no_steps", why="no update by a torch optimizer was seen")
LEAST_COMPARED = 16  # steps of each side; of fewer nothing is concluded, unless the runs end before
PATIENCE = 20  # times the time that is given, until there are as many
STEP = b'{"step"'
Place = tuple[str, str, int, float | None]


class AccountedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One training step: see `StepAccount` in `agent/audit/work_audit.py`."""

    step: int
    backwards: int
    optimizers: int
    samples: int | None
    tokens: int | None
    evaluated: int
    rows: list[str]
    loss: float | None
    flops: dict[str, int] | None
    places: list[Place]
    gradient: float | None
    parameters: int
    moved: float | None
    gradient_signs: list[float]  # projections: see agent/audit/tensor_digests.py
    moved_signs: list[float]
    updated: int
    elements: int
    precision: Literal["highest", "high", "medium"]


@dataclass(slots=True)
class RunAccount:
    """One run, as far as it has come.

    Attributes:
        notes: (kind, what, step), in order.
        ended: Whether the script came to its end by itself.
        processes: That have trained; this account is of the first.
    """

    file: Path
    steps: list[AccountedStep] = field(default_factory=list)
    notes: list[tuple[str, object, int]] = field(default_factory=list)
    ended: bool = False
    evaluated_last: int = 0
    processes: int = 0
    _own: Path = Path()
    _read: int = 0
    _rest: bytes = b""

    def look(self) -> None:
        """Read what has been added."""
        files = sorted(self.file.parent.glob(f"{self.file.name}-*"))
        if not files:
            return
        if not self.steps:  # others may import torch before the one that trains
            self._own = next(filter(_has_steps, files), files[0])
            self._read, self._rest, self.notes, self.evaluated_last = 0, b"", [], 0
        self.processes = bool(self.steps) + sum(_has_steps(each) for each in files if each != self._own)
        with self._own.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            told = json.loads(line)  # a loss may be NaN, which msgspec does not read
        except ValueError:
            raise AutobrrrError(f"the account of a run is cut: is {self.file.parent} full?") from None
        if "note" in told:
            self.notes.append((told["note"], told["what"], told["step"]))
        elif "end" in told:
            self.evaluated_last = told["evaluated"]
        else:
            self.steps.append(msgspec.convert(told, AccountedStep))

    def noted(self, kind: str, before_step: int | None = None) -> list[object]:
        """What was noted of a kind; of the first few steps only, where it says so."""
        return [
            what
            for name, what, step in self.notes
            if name == kind and (before_step is None or step < before_step)
        ]


def _has_steps(file: Path) -> bool:
    """Its first lines may be notes."""
    return STEP in file.read_bytes()


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
    accounts: list[RunAccount] = []
    enough: int | None = None
    for number, (side, launch) in enumerate(launches, 1):
        doing = f"counting the work of {side}, run {number} of {len(launches)}"
        account = RunAccount(file=factory.home / secrets.token_hex(6))
        trial = factory.begin(replace(launch, audit=account.file))
        trial.witnesses.rest()
        try:
            _watch(trial, account, tell, doing, time_s=time_s, least=least, enough=enough)
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
    doing: str,
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
        tell(f"{doing}: {count} steps" if count else doing)
        time.sleep(LOOK_S)
