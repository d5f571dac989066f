"""How ranks change something at one step, or none of them does: plans and answers, no torch, no waiting.

A plan names a count `at` that no rank has come to. Each rank that can carry it out says that it is ready,
and is bound from then on: at its first boundary with that count or more it puts `go` where all have said so,
else `drop`. The register keeps what was put first, so one outcome stands for all, whatever each of them has
seen; `go` stands only where every rank is bound. Who can not, says why, and puts `drop` at once.

Counts are the same on all ranks at the same boundary, and rise. The register answers at once
(`shared_log.py`), so the training thread asks it itself: what a rank holds belongs to that thread alone.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Protocol

READY = "ready"
PLAN = "/plan"


class NotReady(enum.Enum):
    """Whether another try is worth it; what a rank says that can not begins with it."""

    LATER = "later"  # it is busy, or its step had come already
    NEVER = "never"


class SwitchOutcome(enum.Enum):
    """What stands for all ranks."""

    GO = "go"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """Something that changes on all ranks at the first boundary whose count is at least `at`."""

    number: int  # plans of a job are numbered from 1 on
    at: int
    change: str  # what; whoever carries it out reads it

    def text(self) -> str:
        """As it is written."""
        return json.dumps([self.at, self.change])

    @classmethod
    def read(cls, number: int, text: str) -> SwitchPlan:
        """As another rank has written it."""
        at, change = json.loads(text)
        return cls(number=number, at=at, change=change)


class Register(Protocol):
    """What all ranks share; what was put first at a key stands."""

    def get(self, key: str) -> str | None: ...
    def put(self, key: str, value: str) -> str: ...


def plan_key(number: int) -> str:
    return f"{number}{PLAN}"


def ready_key(number: int, rank: int) -> str:
    return f"{number}/ready/{rank}"


def outcome_key(number: int) -> str:
    return f"{number}/outcome"


def drop(register: Register, number: int) -> SwitchOutcome:
    """Have an end of a plan; what stands, which may be `go`. From any thread."""
    return SwitchOutcome(register.put(outcome_key(number), SwitchOutcome.DROP.value))


class RankMember:
    """One rank's part, on its training thread; `leaving` is set by the agent's.

    Args:
        number: Of the plan that is looked for first.
    """

    def __init__(self, register: Register, rank: int, ranks: int, number: int = 1) -> None:
        self.register, self.rank, self.ranks, self.number = register, rank, ranks, number
        self.held: SwitchPlan | None = None
        self.leaving = False  # takes up no plan any more

    def offer(self, count: int) -> SwitchPlan | None:
        """The plan to answer at this boundary, where nothing is held."""
        text = self.register.get(plan_key(self.number))
        plan = None if text is None else SwitchPlan.read(self.number, text)
        if plan is not None and (self.leaving or count >= plan.at):
            if self.leaving:
                self.answer(plan, f"rank {self.rank} is leaving")
            else:
                self.answer(plan, f"rank {self.rank} came too late", NotReady.LATER)
            return None
        return plan

    def answer(self, plan: SwitchPlan, why: str | None, kind: NotReady = NotReady.NEVER) -> None:
        """The plan can be done here (None), or why not. It is held from now on, or never."""
        if why is None:
            self.held = plan  # first: who has said so is bound, whatever becomes of the register
            self.register.put(ready_key(plan.number, self.rank), READY)
            return
        self.register.put(ready_key(plan.number, self.rank), f"{kind.value} {why}")
        drop(self.register, plan.number)
        self.number = plan.number + 1

    def refusal(self, plan: SwitchPlan) -> tuple[NotReady, str]:
        """What kept the ranks from it: the first that refused, else those that said nothing."""
        said = [self.register.get(ready_key(plan.number, rank)) for rank in range(self.ranks)]
        for one in said:
            if one not in (None, READY):
                kind, _, why = one.partition(" ")
                return NotReady(kind), why
        missing = ", ".join(str(rank) for rank, one in enumerate(said) if one is None)
        return NotReady.LATER, f"rank {missing} did not answer; a remedy goes on in all ranks or in none"

    def outcome(self, count: int) -> SwitchOutcome | None:
        """Of the plan that is held, which ends with it; None: its step is still to come."""
        plan = self.held
        if plan is None:
            return None
        if count < plan.at:
            if self.register.get(outcome_key(plan.number)) != SwitchOutcome.DROP.value:
                return None
            found = SwitchOutcome.DROP
        else:
            found = self._settle(plan)
        self.held = None
        self.number = plan.number + 1
        return found

    def _settle(self, plan: SwitchPlan) -> SwitchOutcome:
        keys = (ready_key(plan.number, rank) for rank in range(self.ranks))
        ready = all(self.register.get(key) == READY for key in keys)
        mine = SwitchOutcome.GO if ready else SwitchOutcome.DROP
        return SwitchOutcome(self.register.put(outcome_key(plan.number), mine.value))
