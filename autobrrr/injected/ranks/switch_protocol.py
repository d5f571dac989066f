"""How ranks change something at one step, or none of them does: states and messages, no torch, no waiting.

A plan names a count `at` that no rank has come to. Each rank that holds the plan says so; once all have, the
coordinator puts `go`. A rank that comes to `at` and knows no outcome puts `drop`. What was put first stands
for all. Every message is a value that is written once, so one that comes late, twice or never changes nothing
that stands.

A rank that is ready may not decide alone: `go` may stand already. So it has to ask before it goes past `at`.
The register answers at once (`shared_log.py`): the agent's thread asks from `settle_from` on, the training
thread at `at` where it knows no outcome yet, and ranks never differ.

Counts are the same on all ranks at the same boundary, and rise. Classes here do no input or output: who
drives them puts what they want and tells them what stands.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field

READY = "ready"
PLAN = "/plan"


class NotReady(enum.Enum):
    """Why a rank does not take a plan up; what it says begins with it."""

    LATE = "late"  # its step has come already
    BUSY = "busy"  # not now
    LEAVING = "leaving"
    UNFIT = "unfit"  # and it stays so


class SwitchOutcome(enum.Enum):
    """What stands for all ranks."""

    GO = "go"
    DROP = "drop"


class BoundaryDuty(enum.Enum):
    """What the training thread does about a plan at a boundary."""

    NOTHING = "nothing"
    TRY = "try"  # a plan is offered: see whether it can be done here, then call `tried`
    HURRY = "hurry"  # wake the agent's thread: it has something to ask
    ASK = "ask"  # put `drop` here and now, then call `settled`
    SWITCH = "switch"
    STAY = "stay"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """Something that changes on all ranks at the first boundary whose count is at least `at`."""

    number: int  # plans of a job are numbered from 1 on
    settle_from: int  # nobody takes the plan up from here on; who knows no outcome asks
    at: int
    change: str  # what; whoever carries it out reads it

    def text(self) -> str:
        """As it is written."""
        return json.dumps([self.settle_from, self.at, self.change])

    @classmethod
    def read(cls, number: int, text: str) -> SwitchPlan:
        """Raises ValueError where this is no plan."""
        found = json.loads(text)
        if not isinstance(found, list) or list(map(type, found)) != [int, int, str]:
            raise ValueError(f"no plan: {text[:80]!r}")
        return cls(number=number, settle_from=found[0], at=found[1], change=found[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterAsk:
    """One question to the register: what stands at a key, once `value` was put there where nothing stood.

    `value` is None for a look, which changes nothing.
    """

    number: int
    key: str
    value: str | None


def plan_key(number: int) -> str:
    return f"{number}{PLAN}"


def ready_key(number: int, rank: int) -> str:
    return f"{number}/ready/{rank}"


def outcome_key(number: int) -> str:
    return f"{number}/outcome"


@dataclass(slots=True, eq=False)
class RankMember:
    """One rank's part. The training thread calls `at_boundary`, `tried`, `settled`, the agent's all else.

    The threads share single attributes, each written whole. What is known of an outcome carries its number,
    so one that is heard late is not taken for that of the next plan.

    Args:
        number: Of the plan that is looked for first.
    """

    rank: int
    number: int = 1
    held: SwitchPlan | None = field(init=False, default=None)
    leaving: bool = field(init=False, default=False)  # takes up no plan any more
    refusal: str | None = field(init=False, default=None)  # of the plan that is offered: the kind, and why
    _offer: SwitchPlan | None = field(init=False, default=None)
    _answered: int = field(init=False, default=0)  # plans up to this one were answered
    _known: tuple[int, SwitchOutcome] | None = field(init=False, default=None)

    @property
    def offer(self) -> SwitchPlan | None:
        """A plan that waits for the next boundary."""
        offer = self._offer
        open_ = self.held is None and self.refusal is None and offer is not None
        return offer if open_ and offer is not None and offer.number == self.number else None

    @property
    def free(self) -> bool:
        """Nothing is held: the rank may leave."""
        return self.held is None

    # The training thread

    def at_boundary(self, count: int) -> BoundaryDuty:
        """What to do between two steps."""
        plan = self.held
        if plan is None:
            offer = self.offer
            if offer is None:
                return BoundaryDuty.NOTHING
            if self.leaving or count >= offer.settle_from:
                kind = NotReady.LEAVING if self.leaving else NotReady.LATE
                self.refusal = f"{kind.value} rank {self.rank}"
                return BoundaryDuty.HURRY
            return BoundaryDuty.TRY
        outcome = self._outcome()
        if count < plan.at:
            return (
                BoundaryDuty.HURRY if outcome is None and count >= plan.settle_from else BoundaryDuty.NOTHING
            )
        return BoundaryDuty.ASK if outcome is None else self._carry_out(outcome)

    def tried(self, why: str | None, kind: NotReady = NotReady.UNFIT) -> None:
        """The offered plan can be done here (None), or why not. It is held from now on, or never."""
        if why is None:
            self.held = self._offer
        else:
            self.refusal = f"{kind.value} {why}"

    def settled(self, standing: str) -> BoundaryDuty:
        """What stands at the outcome's key, after `ASK`."""
        return self._carry_out(SwitchOutcome(standing))

    def _carry_out(self, outcome: SwitchOutcome) -> BoundaryDuty:
        self.held = None
        self.number += 1
        return BoundaryDuty.STAY if outcome is SwitchOutcome.DROP else BoundaryDuty.SWITCH

    def _outcome(self) -> SwitchOutcome | None:
        known = self._known
        return known[1] if known is not None and known[0] == self.number else None

    # The agent's thread

    def wants(self) -> RegisterAsk | None:
        """What to ask next; None where the training thread has to come to a boundary first."""
        number, plan, refusal = self.number, self.held, self.refusal
        if plan is not None and plan.number == number:
            if self._answered < number:
                return RegisterAsk(number=number, key=ready_key(number, self.rank), value=READY)
            if self._outcome() is not None:
                return None
            return RegisterAsk(number=number, key=outcome_key(number), value=None)
        if refusal is not None:
            return RegisterAsk(number=number, key=ready_key(number, self.rank), value=refusal)
        if self._offer is None or self._offer.number != number:
            return RegisterAsk(number=number, key=plan_key(number), value=None)
        return None

    def presses(self) -> RegisterAsk | None:
        """What to ask to have an end: `drop` for the plan that is held, where no outcome is known."""
        if self.held is None or self._outcome() is not None:
            return None
        return RegisterAsk(
            number=self.held.number, key=outcome_key(self.held.number), value=SwitchOutcome.DROP.value
        )

    def heard(self, ask: RegisterAsk, standing: str | None) -> None:
        """What stands there; None: nothing does. Raises ValueError where it is none of ours."""
        number = ask.number
        if standing is None or number != self.number:
            return
        if ask.key == plan_key(number):
            self._offer = SwitchPlan.read(number, standing)
        elif ask.key == outcome_key(number):
            self._known = (number, SwitchOutcome(standing))
        elif self.held is not None:
            self._answered = number
        elif self.refusal is not None:  # said: on to the next plan; in this order, or it would be tried again
            self.number = number + 1
            self.refusal = None


class SwitchCoordinator:
    """Puts `go` once all ranks are ready, on the thread of whoever wants the change.

    If it dies, the ranks drop.

    Attributes:
        outcome: What stands, once it is known.
        refused: What kind of refusal it was, where a rank said so; `why` in its words.
        beaten: Another plan has this number.
        waited_for: Ranks that have said nothing yet.
    """

    __slots__ = ("_plan", "_proposed", "beaten", "outcome", "refused", "waited_for", "why")

    def __init__(self, plan: SwitchPlan, ranks: int) -> None:
        self._plan = plan
        self._proposed = False
        self.waited_for = tuple(range(ranks))
        self.outcome: SwitchOutcome | None = None
        self.refused: NotReady | None = None
        self.why = ""
        self.beaten = False

    def wants(self) -> RegisterAsk | None:
        """What to ask next; None once there is an outcome."""
        number = self._plan.number
        if self.beaten or self.outcome is not None:
            return None
        if not self._proposed:
            return RegisterAsk(number=number, key=plan_key(number), value=self._plan.text())
        if self.refused is not None:
            return RegisterAsk(number=number, key=outcome_key(number), value=SwitchOutcome.DROP.value)
        if self.waited_for:
            return RegisterAsk(number=number, key=ready_key(number, self.waited_for[0]), value=None)
        return RegisterAsk(number=number, key=outcome_key(number), value=SwitchOutcome.GO.value)

    def looks(self) -> list[RegisterAsk]:
        """What to ask to know who has said what."""
        number = self._plan.number
        return [
            RegisterAsk(number=number, key=ready_key(number, rank), value=None) for rank in self.waited_for
        ]

    def presses(self) -> RegisterAsk:
        """What to ask to have an end: somebody may have dropped it, or nobody waits any longer."""
        number = self._plan.number
        return RegisterAsk(number=number, key=outcome_key(number), value=SwitchOutcome.DROP.value)

    def heard(self, ask: RegisterAsk, standing: str | None) -> None:
        """What stands there; None: nothing does. Raises ValueError where it is none of ours."""
        number = self._plan.number
        if standing is None:
            return
        if ask.key == plan_key(number):
            self._proposed = True
            self.beaten = standing != self._plan.text()
        elif ask.key == outcome_key(number):
            self.outcome = SwitchOutcome(standing)
        elif standing == READY:
            waited = self.waited_for
            self.waited_for = tuple(rank for rank in waited if ready_key(number, rank) != ask.key)
        else:
            kind, _, self.why = standing.partition(" ")
            self.refused = NotReady(kind)
