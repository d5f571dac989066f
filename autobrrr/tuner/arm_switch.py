"""Brings the job from one set of levers to another, and always knows which are on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autobrrr.records import ExactnessClass
from autobrrr.tuner.candidate_space import Choice
from autobrrr.tuner.job_under_test import JobUnderTest, LeverLost, NotApplied

Arm = tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRemedy:
    """A choice that is on."""

    choice: Choice
    token: int
    cls: ExactnessClass


class ArmSwitch:
    """The levers of one job.

    Args:
        allowed: Classes that the user allows; the job refuses a lever that is wider on it.
        on: Levers that are on already, oldest first.
    """

    def __init__(
        self, bench: JobUnderTest, allowed: Sequence[ExactnessClass], on: Sequence[ArmRemedy] = ()
    ) -> None:
        self._bench = bench
        self._allowed = tuple(allowed)
        self._on = list(on)
        self._seen: dict[Choice, ExactnessClass] = {lever.choice: lever.cls for lever in on}
        self.lost: dict[Choice, str] = {}
        self.warm: set[Choice] = {lever.choice for lever in on}  # have been on for some steps

    @property
    def levers(self) -> tuple[ArmRemedy, ...]:
        """What is on, oldest first."""
        return tuple(self._on)

    def cls_of(self, choice: Choice) -> ExactnessClass | None:
        """What a choice does to the numbers of this job, once it has been applied."""
        return self._seen.get(choice)

    def go(self, arm: Arm) -> tuple[int, bool]:
        """Undo what does not belong to the arm, newest first, then apply what is missing.

        Returns:
            The first step under exactly this arm, and whether anything was switched.

        Raises:
            NotApplied: a remedy refused; the others are as the arm says.
            LeverLost: a lever went off by itself, or could not be switched.
        """
        self._drop_lost()
        seq = None
        for lever in reversed(self._on[:]):
            if lever.choice not in arm:
                seq = self._bench.undo(lever.token)
                self._on.remove(lever)
        present = {lever.choice for lever in self._on}
        refusals: list[str] = []
        for choice in arm:
            if choice not in present:
                try:
                    seq = self._apply(choice)
                except NotApplied as refused:
                    refusals.append(str(refused))
        if refusals:
            raise NotApplied("; ".join(refusals))
        return (self._bench.next_seq(), False) if seq is None else (seq, True)

    def _apply(self, choice: Choice) -> int:
        applied = self._bench.apply(choice.remedy, choice.settings, self._allowed)
        self._on.append(ArmRemedy(choice=choice, token=applied.token, cls=applied.cls))
        self._seen[choice] = applied.cls
        return applied.seq

    def _drop_lost(self) -> None:
        lost = self._bench.lost()
        gone = [lever for lever in self._on if lever.token in lost]
        if gone:
            self._on = [lever for lever in self._on if lever.token not in lost]
            self.lost.update({lever.choice: lost[lever.token] for lever in gone})
            raise LeverLost("; ".join(f"{lever.choice.label}: {lost[lever.token]}" for lever in gone))
