"""Ranks change something at one step or not at all, in every order of steps, questions and answers."""

import pytest

from autobrrr.agent.ranks.switch_protocol import (
    RankMember,
    SwitchOutcome,
    SwitchPlan,
    outcome_key,
    plan_key,
    ready_key,
)
from support.simulated.rank_model import STEPS, Explored, explore, leaver, plan, proposer, rank

FIRST, SECOND = (1, "a"), (2, "b")


def pair(kind: type[RankMember] = RankMember, *, plans: int = 1, write_once: bool = True) -> Explored:
    """Two ranks, of which the second may have a fault."""
    members = [rank(0, 2, plans), rank(1, 2, plans, kind)]
    return explore(members, [proposer(*"ab"[:plans]), leaver], write_once=write_once)


def test_two_ranks_never_differ() -> None:
    found = pair()
    assert found.splits == 0
    assert found.outcomes == {((FIRST,), (FIRST,)), ((), ())}
    assert found.states > 500


def test_of_two_who_want_something_one_is_heard() -> None:
    found = explore([rank(0, 2, 1), rank(1, 2, 1)], [proposer("a"), proposer("b")])
    assert found.splits == 0
    assert found.outcomes == {((FIRST,),) * 2, (((1, "b"),),) * 2, ((), ())}


@pytest.mark.integration
def test_two_ranks_never_differ_through_a_change_and_its_undo() -> None:
    found = pair(plans=2)
    assert found.splits == 0
    assert found.outcomes == {((), ()), *((made, made) for made in ((FIRST,), (SECOND,), (FIRST, SECOND)))}


def test_where_one_of_them_can_not_none_does() -> None:
    found = explore([rank(0, 2, 1), rank(1, 2, 1, refuses=True)], [proposer("a")])
    assert (found.splits, found.outcomes) == (0, {((), ())})


@pytest.mark.nightly
@pytest.mark.integration
def test_three_ranks_never_differ() -> None:
    found = explore([rank(number, 3, 1) for number in range(3)], [proposer("a")])
    assert found.splits == 0
    assert found.outcomes == {((FIRST,),) * 3, ((),) * 3}


class Presumes(RankMember):
    """Takes what it sees for the outcome, and puts none."""

    def _settle(self, plan: SwitchPlan) -> SwitchOutcome:
        found = self.register.get(outcome_key(plan.number))
        return SwitchOutcome.DROP if found is None else SwitchOutcome(found)


class DoesNotWaitForAll(RankMember):
    """Is content with itself."""

    def _settle(self, plan: SwitchPlan) -> SwitchOutcome:
        return SwitchOutcome(self.register.put(outcome_key(plan.number), SwitchOutcome.GO.value))


class TakesLatePlans(RankMember):
    """Takes up a plan whose step has gone."""

    def offer(self, count: int) -> SwitchPlan | None:
        return super().offer(count if count < STEPS else STEPS - 1)


class Forgets(RankMember):
    """Says that it is ready, and is not bound."""

    def answer(self, plan: SwitchPlan, why: str | None, kind: object = None) -> None:
        super().answer(plan, why)
        self.held, self.number = None, plan.number + 1


@pytest.mark.parametrize("fault", [Presumes, DoesNotWaitForAll, TakesLatePlans, Forgets])
def test_a_rank_with_a_fault_is_found_out(fault: type[RankMember]) -> None:
    assert pair(fault).splits


def test_a_register_that_can_be_written_twice_is_found_out() -> None:
    assert pair(write_once=False).splits


def test_a_plan_is_read_as_it_was_written() -> None:
    made = SwitchPlan(number=7, at=44, change='{"remedy": "threads.intra_op"}')
    assert SwitchPlan.read(7, made.text()) == made


class Kept(dict[str, str]):
    """A register."""

    def put(self, key: str, value: str) -> str:
        return self.setdefault(key, value)


@pytest.mark.parametrize(
    ("leaving", "count", "said"),
    [(True, 1, "never rank 0 is leaving"), (False, STEPS, "later rank 0 came too late")],
)
def test_a_rank_that_can_not_says_why_and_goes_on_to_a_plan(leaving: bool, count: int, said: str) -> None:
    register = Kept({plan_key(1): plan(1).text()})
    member = RankMember(register, 0, 1)
    member.leaving = leaving
    assert member.offer(count) is None
    assert (register[ready_key(1, 0)], register[outcome_key(1)]) == (said, "drop")
    assert (member.number, member.held) == (2, None)


def test_a_rank_that_is_ready_ends_at_once_where_another_has_dropped_it() -> None:
    register = Kept({plan_key(1): plan(1).text()})
    member = RankMember(register, 0, 2)
    offered = member.offer(1)
    assert offered is not None
    member.answer(offered, None)
    assert member.outcome(2) is None
    register.put(outcome_key(1), "drop")
    assert (member.outcome(2), member.number) == (SwitchOutcome.DROP, 2)
