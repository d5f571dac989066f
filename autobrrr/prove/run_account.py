"""Runs whose work is counted, untimed, in sequence, from one seed; and the account that each writes.

In: how each is started. Out: an account of each: a file that grows, read as data of a stranger. Lines that
are not as they should be are left out. Alone, no run waits for another's threads, and none takes the memory
that another needs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from autobrrr.attach.preload.preloaded_agent import Audit
from autobrrr.errors import AutobrrrError
from autobrrr.folders import open_plain
from autobrrr.relaunch.study.command_refusals import Unmeasurable
from autobrrr.relaunch.trial.live_trial import LiveTrial
from autobrrr.relaunch.trial.trial_endings import TrialEnding
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from autobrrr.relaunch.trial.trial_launch import TrialLaunch

LOOK_S = 0.05
NO_STEPS = TrialEnding(kind="no_steps", why="no update by a torch optimizer was seen")
LEAST_COMPARED = 16  # steps of each side; of fewer nothing is concluded, unless the runs end before
PATIENCE = 10  # times the time that is given, until there are as many
MOST_BYTES = 256 << 20
MOST_NOTES = 1 << 20
STEP = b'{"step"'
Place = tuple[str, str, int, float | None]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]


class AccountedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One training step: see `StepAccount` in `agent/audit/work_audit.py`."""

    step: int
    backwards: Count
    optimizers: Count
    samples: Count | None
    tokens: Count | None
    evaluated: Count
    rows: list[str]
    loss: float | None
    flops: dict[str, Count] | None
    places: list[Place]
    gradient: float | None
    parameters: int
    moved: Annotated[float, msgspec.Meta(ge=0)] | None
    gradient_signs: list[float]  # projections: see agent/audit/tensor_digests.py
    moved_signs: list[float]
    updated: Count
    elements: Count
    precision: Literal["highest", "high", "medium"]


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    note: str
    what: object
    step: int


class _End(msgspec.Struct, frozen=True, kw_only=True):
    end: int
    evaluated: int


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
        if not files or self._read > MOST_BYTES:
            return
        if not self.steps:  # others may import torch before the one that trains
            self._own = next(filter(_has_steps, files), files[0])
            self._read, self._rest, self.notes, self.evaluated_last = 0, b"", [], 0
        self.processes = bool(self.steps) + sum(_has_steps(each) for each in files if each != self._own)
        data = _bytes_of(self._own, MOST_BYTES, self._read)
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            if line.startswith(STEP):
                self.steps.append(msgspec.json.decode(line, type=AccountedStep))
            elif line.startswith(b'{"note"'):
                note = msgspec.json.decode(line, type=_Note)
                self.notes.append((note.note, note.what, note.step))
            elif line.startswith(b'{"end"'):
                self.evaluated_last = msgspec.json.decode(line, type=_End).evaluated
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return

    def noted(self, kind: str, before_step: int | None = None) -> list[object]:
        """What was noted of a kind; of the first few steps only, where it says so."""
        return [
            what
            for name, what, step in self.notes
            if name == kind and (before_step is None or step < before_step)
        ]


def _has_steps(file: Path) -> bool:
    """Its first lines may be notes."""
    return any(line.startswith(STEP) for line in _bytes_of(file, MOST_NOTES).split(b"\n"))


def _bytes_of(file: Path, most_bytes: int, start: int = 0) -> bytes:
    """Nothing where the run has put something else there than a file."""
    try:
        with open(open_plain(file), "rb") as opened:
            opened.seek(start)
            return opened.read(most_bytes)
    except OSError:
        return b""


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
