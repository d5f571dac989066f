"""Every order in which ranks can come to what they share, one question to the register at a time.

The ranks are those of `switch_protocol`, not a copy of its rules. Each is run from its beginning with the
answers that it has had so far, up to the question that comes next; from each state every question is asked
that anybody could ask next. So who is late, and who dies (whose next question never comes), is all there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from autobrrr.agent.ranks.switch_protocol import (
    RankMember,
    Register,
    SwitchOutcome,
    SwitchPlan,
    drop,
    plan_key,
)

STEPS = 3  # from one plan to the next
Answers = tuple[str | None, ...]
Program = Callable[[Register], object]  # one party; a rank returns the plans that it has carried out


def plan(number: int, change: str = "") -> SwitchPlan:
    return SwitchPlan(number=number, at=STEPS * number, change=change)


class _Asks(Exception):
    """The question that comes next."""


class Replayed:
    """A register that gives the answers of before; at the first new question the party stops."""

    def __init__(self, answers: Answers) -> None:
        self._answers = iter(answers)

    def get(self, key: str) -> str | None:
        for answer in self._answers:
            return answer
        raise _Asks(key, None)

    def put(self, key: str, value: str) -> str:
        for answer in self._answers:
            return str(answer)
        raise _Asks(key, value)


def rank(
    number: int, ranks: int, plans: int, kind: type[RankMember] = RankMember, refuses: bool = False
) -> Program:
    """A rank that comes to all boundaries, one more than the last plan needs."""

    def program(register: Register) -> object:
        member, made = kind(register, number, ranks), []
        for count in range(1, STEPS * plans + 2):
            if member.held is None:
                offered = member.offer(count)
                if offered is not None:
                    member.answer(offered, "it does not fit" if refuses else None)
                continue
            held = member.held
            if member.outcome(count) is SwitchOutcome.GO:
                made.append((held.number, held.change))
        return tuple(made)

    return program


def proposer(*changes: str) -> Program:
    """Who wants something: plans one after the other."""

    def program(register: Register) -> object:
        for number, change in enumerate(changes, 1):
            register.put(plan_key(number), plan(number, change).text())
        return None

    return program


def leaver(register: Register) -> object:
    """An agent's thread that has an end of the first plan."""
    drop(register, 1)
    return None


@dataclass(slots=True)
class Explored:
    """What was found; `splits` are states in which two ranks that are through have made different changes."""

    states: int = 0
    splits: int = 0
    outcomes: set[tuple[object, ...]] = field(default_factory=set)  # of all ranks, where all are through


def explore(ranks: list[Program], others: list[Program], *, write_once: bool = True) -> Explored:
    """Take every action that anybody could take, in every order."""
    found, parties = Explored(), [*ranks, *others]

    @cache  # a party that has had the same answers does the same
    def run(at: int, answers: Answers) -> tuple[tuple[str, str | None] | None, object]:
        """The question that comes next, or None and what was returned."""
        try:
            return None, parties[at](Replayed(answers))
        except _Asks as ask:
            return ask.args, None

    begin: tuple[tuple[Answers, ...], frozenset[tuple[str, str]]] = (((),) * len(parties), frozenset())
    seen, waiting = {begin}, [begin]
    while waiting:
        answers, standing = waiting.pop()
        found.states += 1
        ended: list[object] = []
        for at in range(len(parties)):
            asked, made = run(at, answers[at])
            if asked is not None:
                key, value = asked
                stands = dict(standing)
                if value is not None and (key not in stands or not write_once):
                    stands[key] = value
                told = (*answers[at], stands.get(key))
                after = ((*answers[:at], told, *answers[at + 1 :]), frozenset(stands.items()))
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
            elif at < len(ranks):
                ended.append(made)
        found.splits += len(set(ended)) > 1
        if len(ended) == len(ranks):
            found.outcomes.add(tuple(ended))
    return found
