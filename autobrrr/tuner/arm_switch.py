"""Brings the job from one set of remedies to another, and always knows which are on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autobrrr.tuner.ab_blocks import LongBlocks
from autobrrr.tuner.candidate_space import Choice
from autobrrr.tuner.job_under_test import JobUnderTest, NotApplied, RemedyLost

Arm = tuple[Choice, ...]
SWITCH_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRemedy:
    """A choice that is on."""

    choice: Choice
    token: int


class ArmSwitch:
    """The remedies of one job.

    Args:
        on: Remedies that are on already, oldest first.
    """

    def __init__(self, bench: JobUnderTest, on: Sequence[ArmRemedy] = ()) -> None:
        self._bench = bench
        self._on = list(on)
        self.lost: dict[Choice, str] = {}
        self.usual = LongBlocks()
        self.warm: set[Choice] = {applied.choice for applied in on}  # have been on for some steps

    @property
    def active(self) -> tuple[ArmRemedy, ...]:
        """What is on, oldest first."""
        return tuple(self._on)

    def go(self, arm: Arm) -> tuple[int, bool]:
        """Undo what does not belong to the arm, newest first, then apply what is missing.

        Returns:
            The first step under exactly this arm, and whether anything was switched.

        Raises:
            NotApplied: a remedy refused; the others are as the arm says.
            RemedyLost: a remedy went off by itself, or could not be switched.
        """
        self._drop_lost()
        seq = None
        for applied in reversed(self._on[:]):
            if applied.choice not in arm:
                seq = self._bench.undo(applied.token)
                self._on.remove(applied)
        present = {applied.choice for applied in self._on}
        refusals: list[NotApplied] = []
        for choice in arm:
            if choice not in present:
                try:
                    seq = self._apply(choice)
                except NotApplied as refused:
                    refusals.append(refused)
        if refusals:
            raise NotApplied("; ".join(map(str, refusals)), refusals[0].code)
        return (self._bench.next_seq(), False) if seq is None else (seq, True)

    def hold(self, arm: Arm) -> dict[Choice, str]:
        """Bring the job under an arm, less what goes off by itself or is refused.

        Returns:
            What that was, with the reason.

        Raises:
            RemedyLost: a remedy can't be switched.
        """
        gone: dict[Choice, str] = {}
        for _ in range(SWITCH_ATTEMPTS):
            gone |= {each: f"lost: {self.lost[each]}" for each in arm if each in self.lost}
            try:
                self.go(tuple(each for each in arm if each not in gone))
                return gone
            except RemedyLost as lost:
                why = str(lost)
            except NotApplied as refused:
                why = str(refused)
                on = {applied.choice for applied in self._on}
                refusal = f"could not be applied again: {why}"
                gone |= {each: refusal for each in arm if each not in (*on, *gone)}
        raise RemedyLost(why)

    def _apply(self, choice: Choice) -> int:
        applied = self._bench.apply(choice.remedy, choice.settings)
        self.lost.pop(choice, None)
        self._on.append(ArmRemedy(choice=choice, token=applied.token))
        return applied.seq

    def _drop_lost(self) -> None:
        lost = self._bench.lost()
        gone = [applied for applied in self._on if applied.token in lost]
        if gone:
            self._on = [applied for applied in self._on if applied.token not in lost]
            self.lost.update({applied.choice: lost[applied.token] for applied in gone})
            raise RemedyLost("; ".join(f"{applied.choice.label}: {lost[applied.token]}" for applied in gone))
