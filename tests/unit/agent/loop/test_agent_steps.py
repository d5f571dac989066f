"""What one step is, learnt from the order in which optimizers fire."""

import pytest

from autobrrr.agent.loop.step_pattern import SETTLING_STEPS, Pattern, StepPattern, Usual

A, B = 101, 202


def closings(steps: StepPattern, fires: list[int]) -> list[bool]:
    return [steps.fire(who) for who in fires]


def test_the_first_steps_are_settling_and_later_ones_not() -> None:
    steps = StepPattern()
    closings(steps, [A] * SETTLING_STEPS)
    assert steps.settling
    closings(steps, [A])
    assert not steps.settling


def test_with_n_critic_the_rarest_optimizer_closes_the_step() -> None:
    steps = StepPattern()
    closings(steps, [A, A, A, A, A, B] * 5)
    assert steps.anchor == B
    assert closings(steps, [A, A, A, A, A, B]) == [False] * 5 + [True]


def test_a_step_that_began_under_another_rule_is_not_representative() -> None:
    steps = StepPattern()
    closings(steps, [B] + [A, A, A, B] * 2 + [A, A])
    assert steps.pattern is None
    closed = []
    for who in [A, B, A, A, A, B]:
        if steps.fire(who):
            closed.append(steps.settling)
    assert steps.pattern.anchor == B
    assert closed[0]
    assert not closed[-1]


def test_what_comes_after_a_gap_is_not_joined_with_what_came_before_it() -> None:
    steps = StepPattern()
    closings(steps, [A, A, A, B] * 5)
    steps.passed(30)  # went the short way, and the optimizer that closes steps fires no more
    closings(steps, [A, A, A, A])
    assert steps.pattern == Pattern(anchor=A, cycle=1)


def test_an_optimizer_that_fires_now_and_then_is_no_step() -> None:
    steps = StepPattern()
    closings(steps, [A] * 20 + [B] + [A] * 50)
    assert steps.anchor == A
    assert closings(steps, [A, B, A]) == [True, False, True]
    for usual, anchor in ((15, B), (16, A), (30, A)):
        steps = StepPattern()
        closings(steps, ([A] * usual + [B]) * 9)
        assert steps.anchor == anchor


def test_a_new_optimizer_makes_it_learn_anew() -> None:
    steps = StepPattern()
    closings(steps, [A] * 20)
    steps.fire(B)
    assert steps.settling
    assert steps.anchor == 0
    closings(steps, [B] * 40)
    assert steps.anchor == B
    assert not steps.settling


@pytest.mark.parametrize("source", ["backward", "forward", "loader"])
def test_a_fallback_source_closes_steps_until_an_optimizer_fires(source: str) -> None:
    steps = StepPattern()
    steps.start_over(source)
    assert steps.event(source)
    assert not steps.event("another")
    for _ in range(10):
        steps.event(source)
    assert not steps.settling
    assert steps.anchor == 0
    steps.fire(A)
    assert steps.source == "optimizer"
    assert steps.settling


def test_more_than_usual_is_told_only_once_the_usual_is_known() -> None:
    usual = Usual()
    assert [usual.is_more(count) for count in (2, 2, 9, 2)] == [False] * 4
    assert usual.usual == 2
    assert not usual.is_more(2)
    assert usual.is_more(3)
