"""Runs under account come one after the other; the first says how many steps are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from autobrrr.errors import AutobrrrError
from autobrrr.prove import run_account
from autobrrr.prove.run_account import RunAccount
from autobrrr.relaunch.study.command_refusals import Unmeasurable
from autobrrr.relaunch.trial.live_trial import TrialLaunch
from autobrrr.relaunch.trial.trial_endings import TrialEnding
from support.accounts import step

Start = Callable[[Path], "Started"]
BROKEN = b'{"note":"broken","what":"an error","step":1}\n'


class Started:
    """A trial that makes a step in each look but the first, up to its last."""

    lines = ()

    def __init__(self, file: Path, last: int | None, first: bytes = b"") -> None:
        self.witnesses, self.ending, self.closed = self, cast(TrialEnding | None, None), False
        self._file, self._last, self._count = Path(f"{file}-1"), last, -1
        self._file.write_bytes(first)

    def look(self) -> None:
        if self._count == self._last:
            self.ending = TrialEnding(kind="too_short", why="it ended", code=0)
            return
        if self._count >= 0:
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode(step(self._count)) + b"\n")
        self._count += 1

    def rest(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def counted(folder: Path, *starts: Start, least: int = 4, tell: Any = print) -> list[RunAccount]:
    """The accounts of `before`, of its twin and of `after`; no two run at a time."""
    launch, begun = TrialLaunch(command=("train",), environment={}, folder=folder), list[Started]()

    class Factory:
        home = folder

        def begin(self, launch: TrialLaunch) -> Started:
            assert all(each.closed for each in begun)
            begun.append(starts[len(begun)](launch.audit))
            return begun[-1]

    sides = [(side, launch) for side in ("before", "before", "after")][: len(starts)]
    return run_account.accounts_of(cast(Any, Factory()), sides, 0.3, tell, least)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_account, "LOOK_S", 0.001)


def lasting(*lasts: int | None) -> Sequence[Start]:
    return [lambda file, last=last: Started(file, last) for last in lasts]  # type: ignore[misc]


def test_the_first_runs_for_its_time_and_the_others_for_as_many_steps(tmp_path: Path) -> None:
    before, twin, after = counted(tmp_path, *lasting(None, None, None))
    assert len(before.steps) >= 4
    assert len(before.steps) <= len(twin.steps) <= len(before.steps) + 1
    assert len(before.steps) <= len(after.steps) <= len(before.steps) + 1
    assert not before.ended


def test_each_run_is_a_stage_of_its_own_whose_first_line_holds_no_figure(tmp_path: Path) -> None:
    told: list[str] = []
    counted(tmp_path, *lasting(5, 5, 5), tell=told.append)
    stages = ("before, run 1", "before, run 2", "after, run 3")
    assert [line for line in told if ":" not in line] == [
        f"counting the work of {each} of 3" for each in stages
    ]
    assert told[-1] == "counting the work of after, run 3 of 3: 5 steps"


@pytest.mark.parametrize(("last", "steps", "ended"), [(3, 3, True), (5, 5, True), (9, 6, False)])
def test_where_the_first_ends_the_others_show_whether_they_end_there(
    last: int, steps: int, ended: bool, tmp_path: Path
) -> None:
    before, after = counted(tmp_path, *lasting(5, last), least=16)
    assert (len(before.steps), before.ended) == (5, True)
    assert (len(after.steps), after.ended) == (steps, ended)


def test_who_never_trains_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unmeasurable, match="before: no update"):
        counted(tmp_path, *lasting(0))


def test_an_account_that_stops_before_the_first_step_is_what_is_told(tmp_path: Path) -> None:
    stops = cast(Start, lambda file: Started(file, None, BROKEN))
    with pytest.raises(AutobrrrError, match="the work of before can't be counted: an error"):
        counted(tmp_path, lambda file: _silent(stops(file)))


def _silent(started: Started) -> Started:
    started.look = lambda: None  # type: ignore[method-assign]
    return started
