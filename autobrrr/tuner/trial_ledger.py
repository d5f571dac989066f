"""What became of every candidate: the trials of a tuning, as they end and as they are revised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from autobrrr.records import Advice, Reverted, Trial
from autobrrr.records.tuning_records import NO_PEAKS
from autobrrr.tuner.comparison import Comparison

Outcome = Literal["kept", "undone", "refused", "skipped"]


class TrialLedger:
    """Trials by choice, in the order in which they ended."""

    def __init__(self, on_trial: Callable[[Trial], None]) -> None:
        self._on_trial = on_trial
        self._trials: dict[Advice, Trial] = {}

    @property
    def trials(self) -> list[Trial]:
        return list(self._trials.values())

    def enter(self, choice: Advice, outcome: Outcome, why: str, found: Comparison | None = None) -> None:
        """A trial has ended. What is skipped when it is asked again stays as it was."""
        if outcome == "skipped" and choice in self._trials:
            return
        self._trials[choice] = _trial(choice, outcome, why, found)
        self._on_trial(self._trials[choice])

    def enter_kept(self, choice: Advice) -> None:
        """A remedy that an earlier tuning or a recipe has switched on."""
        self._trials[choice] = _trial(choice, "kept", "on already")

    def revise(self, choice: Advice, why: str) -> None:
        """What had been kept is undone after all."""
        if choice in self._trials:
            self._trials[choice] = msgspec.structs.replace(self._trials[choice], outcome="undone", why=why)
            self._on_trial(self._trials[choice])

    def reverted(self) -> list[Reverted]:
        """What was on at some time and is no longer."""
        return [
            Reverted(remedy=trial.remedy, why=f"{_options(trial)}{trial.why}")
            for trial in self._trials.values()
            if trial.outcome == "undone"
        ]

    def achieved(self, choice: Advice) -> float:
        """The gain that the search found; 1.0 where none is known."""
        trial = self._trials.get(choice)
        return trial.achieved if trial is not None and trial.achieved is not None else 1.0

    def sure(self, choice: Advice) -> float:
        """The least gain by its interval; 1.0 where none is known."""
        trial = self._trials.get(choice)
        return 1.0 if trial is None or trial.interval is None else max(1.0, trial.interval[0])


def _options(trial: Trial) -> str:
    inside = ", ".join(f"{name} = {value}" for name, value in trial.options.items())
    return f"{inside}: " if inside else ""


def _trial(choice: Advice, outcome: Outcome, why: str, found: Comparison | None = None) -> Trial:
    interval = None if found is None else found.interval
    return Trial(
        remedy=choice.remedy,
        options=choice.options,
        outcome=outcome,
        why=why,
        class_=choice.class_,
        predicted=choice.expected,
        achieved=None if interval is None else round(interval.factor, 4),
        interval=None if interval is None else interval.speed(),
        blocks=0 if found is None else 2 * found.pairs,
        steps=0 if found is None else found.steps,
        duration_ns=0 if found is None else found.duration_ns,
        without_ns=None if found is None else found.without_ns,
        peaks=NO_PEAKS if found is None else found.peaks,
    )
