"""Every way in which ranks, their agents and a coordinator can go on, one atomic action at a time.

The ranks are those of `switch_protocol`, not a copy of its rules. A state is what all of them hold, what
stands in the register. From each state every action is taken that anybody could take next: a rank ends a
step, an agent asks and hears. So messages that are late are all there; who dies is who takes no action any
more. A message that comes twice changes nothing in a register that is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from autobrrr.injected.ranks.switch_protocol import (
    BoundaryDuty,
    RankMember,
    SwitchCoordinator,
    SwitchOutcome,
    SwitchPlan,
    outcome_key,
)

Values = tuple[object, ...]
Stands = frozenset[tuple[str, str]]
STEPS = 3  # from one plan to the next
T = TypeVar("T", bound=Hashable)
P = TypeVar("P", RankMember, SwitchCoordinator)


class RankState(NamedTuple):
    """One rank between two actions."""

    member: Values
    count: int = 0  # boundaries that it has come to
    switched: tuple[int, ...] = ()  # plans that it carried out
    lost: bool = False  # it left, and said that the ranks may differ


class CoordinatorState(NamedTuple):
    """Who wants the next change."""

    number: int
    values: Values
    change: str


# All of it, by the numbers under which the parts are kept: ranks, coordinators, what stands.
ModelState = tuple[tuple[int, ...], tuple[int, ...], int]


class Kept(Generic[T]):
    """Parts of states, each under a number."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self._parts: list[T] = []

    def __getitem__(self, number: int) -> T:
        return self._parts[number]

    def number(self, part: T) -> int:
        found = self._numbers.setdefault(part, len(self._parts))
        if found == len(self._parts):
            self._parts.append(part)
        return found


@dataclass(slots=True)
class Explored:
    """What was found."""

    states: int = 0
    splits: int = 0  # states in which ranks differ
    outcomes: set[tuple[tuple[int, ...], ...]] = field(default_factory=set)  # plans carried out, by rank


def plan(number: int, change: str = "") -> SwitchPlan:
    return SwitchPlan(number=number, settle_from=STEPS * number - 1, at=STEPS * number, change=change)


class RankModel:
    """The rules of one world.

    Args:
        ranks: How many.
        plans: How many are put forward, one after the other.
        presses: An agent puts `drop` when it likes, as one does that leaves; else once it is late.
        changes: What is wanted, by each coordinator.
        member, coordinator: Those of the product, or one with a fault.
        write_once: The register keeps what was put first.
    """

    def __init__(
        self,
        ranks: int,
        *,
        plans: int = 1,
        presses: bool = True,
        changes: tuple[str, ...] = ("",),
        member: type[RankMember] = RankMember,
        coordinator: type[SwitchCoordinator] = SwitchCoordinator,
        write_once: bool = True,
    ) -> None:
        self._ranks, self._plans, self._presses = ranks, plans, presses
        self._changes, self._write_once = changes, write_once
        self._member_class, self._coordinator_class = member, coordinator
        self._rank_parts: Kept[RankState] = Kept()
        self._coordinator_parts: Kept[CoordinatorState] = Kept()
        self._stands: Kept[Stands] = Kept()
        self._rank_actions: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._coordinator_actions: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def has_split(self) -> bool:
        """Whether ranks can differ; looks no further once they do."""
        return self.explore(until_split=True).splits > 0

    def explore(self, *, until_split: bool = False) -> Explored:
        """All states that can be reached; each is looked at once."""
        found = Explored()
        members = [self._member_class(rank) for rank in range(self._ranks)]
        first: ModelState = (
            tuple(self._rank_parts.number(RankState(_values(member))) for member in members),
            tuple(self._coordinator_parts.number(self._wanted(1, change)) for change in self._changes),
            self._stands.number(frozenset()),
        )
        seen, waiting = {first}, [first]
        judged: dict[tuple[int, ...], int] = {}
        while waiting and not (until_split and found.splits):
            state = waiting.pop()
            ranks = state[0]
            if ranks not in judged:
                judged[ranks] = self._judged(ranks, found.outcomes)
            found.splits += judged[ranks]
            for after in self._next(state):
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        found.states = len(seen)
        return found

    def _judged(self, parts: tuple[int, ...], outcomes: set[tuple[tuple[int, ...], ...]]) -> int:
        """For how many plans the ranks differ."""
        ranks = [rank for rank in map(self._rank_parts.__getitem__, parts) if not rank.lost]
        splits = 0
        for number in range(1, self._plans + 1):
            past = [rank for rank in ranks if rank.count >= STEPS * number]
            splits += len({number in rank.switched for rank in past}) > 1
        if len(ranks) == self._ranks and all(rank.count > STEPS * self._plans for rank in ranks):
            outcomes.add(tuple(rank.switched for rank in ranks))
        return splits

    def _next(self, state: ModelState) -> list[ModelState]:
        ranks, coordinators, stands = state
        found: list[ModelState] = []
        for place, rank in enumerate(ranks):
            before, behind = ranks[:place], ranks[place + 1 :]
            for now, after in self._known(self._rank_actions, rank, stands, self._of_rank):
                found.append(((*before, after, *behind), coordinators, now))
        for place, one in enumerate(coordinators):
            before, behind = coordinators[:place], coordinators[place + 1 :]
            for now, after in self._known(self._coordinator_actions, one, stands, self._of_coordinator):
                found.append((ranks, (*before, after, *behind), now))
        return found

    def _known(
        self,
        actions: dict[tuple[int, int], list[tuple[int, int]]],
        part: int,
        stands: int,
        work: Callable[[int, Stands], list[tuple[int, int]]],
    ) -> list[tuple[int, int]]:
        found = actions.get((part, stands))
        if found is None:
            found = actions[part, stands] = work(part, self._stands[stands])
        return found

    def _of_rank(self, part: int, stands: Stands) -> list[tuple[int, int]]:
        rank = self._rank_parts[part]
        found = [*self._trained(rank, stands), *self._asked(rank, stands)]
        return [(self._stands.number(now), self._rank_parts.number(after)) for now, after in found]

    def _of_coordinator(self, part: int, stands: Stands) -> list[tuple[int, int]]:
        found = self._coordinated(self._coordinator_parts[part], stands)
        return [(self._stands.number(now), self._coordinator_parts.number(after)) for now, after in found]

    def _trained(self, rank: RankState, stands: Stands) -> Iterator[tuple[Stands, RankState]]:
        """The training thread comes to its next boundary: always, whatever the others do."""
        if rank.count > STEPS * self._plans or rank.lost:
            return
        count = rank.count + 1
        for why in (None, "it does not fit"):
            member, now, switched = self._member(rank.member), stands, rank.switched
            number, duty = member.number, member.at_boundary(count)
            if duty is BoundaryDuty.TRY:
                member.tried(why)
            elif why is not None:
                return
            if duty is BoundaryDuty.ASK:
                now, standing = self._put(stands, outcome_key(number), SwitchOutcome.DROP.value)
                duty = member.settled(str(standing))
            if duty is BoundaryDuty.SWITCH:
                switched = (*switched, number)
            yield now, RankState(_values(member), count, switched)

    def _asked(self, rank: RankState, stands: Stands) -> Iterator[tuple[Stands, RankState]]:
        if rank.lost:
            return
        member = self._member(rank.member)
        late = member.held is not None and rank.count >= member.held.settle_from
        asks = [member.wants(), member.presses() if late or self._presses else None]
        for ask in {ask for ask in asks if ask is not None}:
            after = self._member(rank.member)
            now, standing = self._put(stands, ask.key, ask.value)
            after.heard(ask, standing)
            yield now, RankState(_values(after), rank.count, rank.switched)

    def _coordinated(
        self, one: CoordinatorState, stands: Stands
    ) -> Iterator[tuple[Stands, CoordinatorState]]:
        asks = [self._coordinator(one).wants(), self._coordinator(one).presses()]
        for ask in {ask for ask in asks if ask is not None}:
            after = self._coordinator(one)
            now, standing = self._put(stands, ask.key, ask.value)
            after.heard(ask, standing)
            if after.outcome is not None and one.number < self._plans:
                yield now, self._wanted(one.number + 1, one.change)
            else:
                yield now, CoordinatorState(one.number, _values(after), one.change)

    def _put(self, stands: Stands, key: str, value: str | None) -> tuple[Stands, str | None]:
        kept = dict(stands)
        standing = kept.get(key)
        if value is None or (standing is not None and self._write_once):
            return stands, standing
        return frozenset({**kept, key: value}.items()), value

    def _wanted(self, number: int, change: str) -> CoordinatorState:
        made = self._coordinator_class(plan(number, change), self._ranks)
        return CoordinatorState(number, _values(made), change)

    def _coordinator(self, state: CoordinatorState) -> SwitchCoordinator:
        made = self._coordinator_class(plan(state.number, state.change), self._ranks)
        return _revived(made, state.values)

    def _member(self, values: Values) -> RankMember:
        return _revived(self._member_class(0), values)


def _slots(one: object) -> list[str]:
    return [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]


def _values(one: object) -> Values:
    return tuple(getattr(one, name) for name in _slots(one))


def _revived(one: P, values: Values) -> P:
    for name, value in zip(_slots(one), values, strict=True):
        setattr(one, name, value)
    return one
