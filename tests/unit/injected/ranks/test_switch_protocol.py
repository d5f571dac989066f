"""Ranks change something at one step or not at all, in every order of steps, questions and answers."""

from __future__ import annotations

import pytest

from autobrrr.injected.ranks.switch_protocol import (
    READY,
    BoundaryDuty,
    NotReady,
    RankMember,
    RegisterAsk,
    SwitchCoordinator,
    SwitchOutcome,
    SwitchPlan,
    outcome_key,
    ready_key,
)
from support.simulated.rank_model import Explored, RankModel

ALL, NONE = ((1,), (1,)), ((), ())


def explored(model: RankModel) -> Explored:
    found = model.explore()
    print(f"{found.states} states, {found.splits} splits")
    return found


def test_two_ranks_never_differ() -> None:
    found = explored(RankModel(2))
    assert found.splits == 0
    assert found.outcomes == {ALL, NONE}
    assert found.states > 4_000


def test_of_two_who_want_something_one_is_heard() -> None:
    found = explored(RankModel(2, changes=("a", "b"), presses=False))
    assert found.splits == 0
    assert found.outcomes == {ALL, NONE}


@pytest.mark.integration
def test_two_ranks_never_differ_through_a_change_and_its_undo() -> None:
    found = explored(RankModel(2, plans=2))
    assert found.splits == 0
    assert found.outcomes == {NONE, ALL, ((1, 2), (1, 2)), ((2,), (2,))}
    assert found.states > 200_000


@pytest.mark.nightly
@pytest.mark.integration
def test_three_ranks_never_differ() -> None:
    found = explored(RankModel(3))
    assert found.splits == 0
    assert found.outcomes == {((1,),) * 3, ((),) * 3}
    assert found.states > 100_000


class Presumes(RankMember):
    """Takes silence for `drop`."""

    __slots__ = ()

    def at_boundary(self, count: int) -> BoundaryDuty:
        duty = super().at_boundary(count)
        return self.settled(SwitchOutcome.DROP.value) if duty is BoundaryDuty.ASK else duty


class TakesLatePlans(RankMember):
    """Takes up a plan whose step has gone."""

    __slots__ = ()

    def at_boundary(self, count: int) -> BoundaryDuty:
        duty = super().at_boundary(count)
        if self.refusal is not None and not self.leaving:
            self.refusal = None
            return BoundaryDuty.TRY
        return duty


class SpeaksTooSoon(RankMember):
    """Says that it is ready before it holds the plan."""

    __slots__ = ()

    def wants(self) -> RegisterAsk | None:
        if self.held is None and self._offer is not None and self._offer.number == self.number:
            return RegisterAsk(number=self.number, key=ready_key(self.number, self.rank), value=READY)
        return super().wants()


class ForgetsTheNumber(RankMember):
    """Takes what it hears for news of the plan that it holds."""

    __slots__ = ()

    def _outcome(self) -> SwitchOutcome | None:
        return None if self._known is None else self._known[1]


class DoesNotWaitForAll(SwitchCoordinator):
    """Is content with one rank."""

    __slots__ = ()

    def heard(self, ask: RegisterAsk, standing: str | None) -> None:
        super().heard(ask, standing)
        if standing == READY:
            self.waited_for = ()


@pytest.mark.parametrize("fault", [Presumes, TakesLatePlans, SpeaksTooSoon])
def test_a_rank_with_a_fault_is_found_out(fault: type[RankMember]) -> None:
    assert RankModel(2, member=fault, presses=False).has_split()


def test_a_rank_that_forgets_of_which_plan_it_heard_is_found_out() -> None:
    assert RankModel(2, plans=2, member=ForgetsTheNumber, presses=False).has_split()


def test_a_coordinator_that_is_content_with_one_rank_is_found_out() -> None:
    assert RankModel(2, coordinator=DoesNotWaitForAll, presses=False).has_split()


def test_a_register_that_can_be_written_twice_is_found_out() -> None:
    assert RankModel(2, write_once=False, presses=False).has_split()


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = SwitchPlan(number=7, settle_from=40, at=44, change='{"remedy": "threads.intra_op"}')
    assert SwitchPlan.read(7, plan.text()) == plan
    for odd in ("[1, 2]", "{}", '["a", 2, "x"]', "nothing"):
        with pytest.raises(ValueError):
            SwitchPlan.read(1, odd)


def test_a_rank_that_can_not_says_why_and_goes_on_to_the_next_plan() -> None:
    member, made = RankMember(0), plan_of(1)
    coordinator = SwitchCoordinator(made, 1)
    ask = member.wants()
    assert ask is not None
    member.heard(ask, made.text())
    assert member.at_boundary(1) is BoundaryDuty.TRY
    member.tried("it does not fit")
    said = member.wants()
    assert said is not None
    member.heard(said, said.value)
    assert member.number == 2
    first = coordinator.wants()
    assert first is not None
    coordinator.heard(first, first.value)
    coordinator.heard(said, said.value)
    assert (coordinator.refused, coordinator.why) == (NotReady.UNFIT, "it does not fit")
    last = coordinator.wants()
    assert last == RegisterAsk(number=1, key=outcome_key(1), value=SwitchOutcome.DROP.value)


def plan_of(number: int) -> SwitchPlan:
    return SwitchPlan(number=number, settle_from=4, at=8, change="")
