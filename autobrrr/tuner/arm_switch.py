"""Brings the job from one set of remedies to another, and always knows which are on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median_low

from autobrrr.records import Advice
from autobrrr.records.wire_answers import ActiveRemedy
from autobrrr.tuner.job_under_test import JobUnderTest, NotApplied, RemedyLost

Arm = tuple[Advice, ...]
SWITCH_ATTEMPTS = 3


class ArmSwitch:
    """The remedies of one job.

    Args:
        on: Remedies that are on already, oldest first.
    """

    def __init__(self, bench: JobUnderTest, on: Iterable[ActiveRemedy] = ()) -> None:
        self._bench = bench
        self._on: dict[Advice, int] = {each: each.token for each in on}
        self.lost: dict[Advice, str] = {}
        self.took_ns = deque([0.0], maxlen=8)  # the latest switches
        self.warm = set(self._on)  # have been on for some steps

    @property
    def switch_ns(self) -> float:
        """From the wish for a change to the first step after it; of two the shorter: one may have waited."""
        return median_low(self.took_ns)

    @property
    def active(self) -> Arm:
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
        for choice, token in reversed(list(self._on.items())):
            if choice not in arm:
                seq = self._bench.undo(token)
                del self._on[choice]
        refusals: list[NotApplied] = []
        for choice in arm:
            if choice not in self._on:
                try:
                    seq = self._apply(choice)
                except NotApplied as refused:
                    refusals.append(refused)
        if refusals:
            raise NotApplied("; ".join(map(str, refusals)), refusals[0].code)
        return (self._bench.next_seq(), False) if seq is None else (seq, True)

    def hold(self, arm: Arm) -> dict[Advice, str]:
        """Bring the job under an arm, less what goes off by itself or is refused.

        Returns:
            What that was, with the reason.

        Raises:
            RemedyLost: a remedy can't be switched.
        """
        gone: dict[Advice, str] = {}
        for _ in range(SWITCH_ATTEMPTS):
            gone |= {each: f"lost: {self.lost[each]}" for each in arm if each in self.lost}
            try:
                self.go(tuple(each for each in arm if each not in gone))
                return gone
            except RemedyLost as lost:
                why = str(lost)
            except NotApplied as refused:
                why = str(refused)
                refusal = f"could not be applied again: {why}"
                gone |= {each: refusal for each in arm if each not in (*self._on, *gone)}
        raise RemedyLost(why)

    def _apply(self, choice: Advice) -> int:
        self._on[choice], seq = self._bench.apply(choice.remedy, choice.options)
        self.lost.pop(choice, None)
        return seq

    def _drop_lost(self) -> None:
        lost = self._bench.lost()
        gone = {choice: lost[token] for choice, token in self._on.items() if token in lost}
        if gone:
            self._on = {choice: token for choice, token in self._on.items() if choice not in gone}
            self.lost.update(gone)
            raise RemedyLost("; ".join(f"{choice.label}: {why}" for choice, why in gone.items()))
