"""A study keeps back the time that its end will take."""

from __future__ import annotations

from autobrrr.relaunch.study.study import StudyBudget

SECOND_NS = 1_000_000_000


class Clock:
    now_s = 100.0

    def __call__(self) -> int:
        return int(self.now_s * SECOND_NS)


def budget(whole_s: float, *took_s: float) -> tuple[StudyBudget, Clock]:
    """A study that has made these trials, one after the other."""
    clock = Clock()
    found = StudyBudget(whole_ns=int(whole_s * SECOND_NS), clock_ns=clock)
    for each in took_s:
        clock.now_s += each
        found.enter(int(each * SECOND_NS))
    return found, clock


def test_short_trials_may_use_seven_tenths() -> None:
    found, clock = budget(100, 2, 2)
    clock.now_s += 63
    assert found.has_time_to_try()
    clock.now_s += 2
    assert not found.has_time_to_try()


def test_what_three_fresh_starts_will_take_is_kept_back() -> None:
    found, _ = budget(90, 15)
    assert found.has_time_to_try()  # 15 + 15 + 3 x 15 are 75
    found, _ = budget(90, 15, 15, 15)
    assert not found.has_time_to_try()


def test_one_trial_is_made_however_short_the_time() -> None:
    assert budget(1)[0].has_time_to_try()
    assert not budget(1, 5)[0].has_time_to_try()


def test_a_part_of_the_winner_is_tried_where_its_confirmation_still_fits() -> None:
    assert budget(60, 10, 10)[0].has_time_to_ablate()
    assert not budget(60, 10, 10, 10)[0].has_time_to_ablate()


def test_a_trial_that_took_long_once_does_not_decide() -> None:
    found, _ = budget(300, 5, 100, 5)
    assert found.spent_ns == 110 * SECOND_NS
    assert found.has_time_to_try()


def test_what_would_have_been_enough_is_enough() -> None:
    for took_s in (2, 100):
        short, _ = budget(1.5 * took_s, took_s)
        assert not short.has_time_to_try()
        enough_s = short.enough_ns(4) / SECOND_NS
        for tries, last in ((4, True), (5, False)):
            found, _ = budget(1.001 * enough_s, *[took_s] * tries)
            assert found.has_time_to_try() is last
