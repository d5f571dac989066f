"""What a tuning has kept is watched over: it goes off where it no longer pays, or the loss is lost."""

from __future__ import annotations

import pytest

from autobrrr.records import Reverted
from support.sessions.service import Guest, Office


def tuned(office: Office, guest: Guest) -> None:
    """A tuning has kept a remedy that halves a step of 2 ms, and the job trains at 1 ms."""
    guest.ask("tune")
    office.tuning.join(5)
    office.run_calls()
    office.session.active.apply("optimizer.fused", {}, lambda done: None)
    office.agent.answer("apply", token=3, arm=1, seq=0, **{"class": "rounding"})
    train(office, 1_000_000)


def train(office: Office, step_ns: int) -> None:
    for _ in range(260):
        office.writer.step(step_ns, arm=1)
        office.session.tick()


def guarded(office: Office) -> None:
    """The comparison that the tick has started is through."""
    office.tuning.join(5)
    office.run_calls()


def test_what_goes_on_paying_is_left_alone(office: Office, guest: Guest) -> None:
    tuned(office, guest)
    for _ in range(20):
        office.later(30)
    guarded(office)
    assert office.guard.asked == []


def test_what_has_stopped_paying_is_compared_and_undone_and_said(office: Office, guest: Guest) -> None:
    tuned(office, guest)
    train(office, 1_900_000)
    office.later(1)
    assert office.guard.asked == []  # not at the first slow moment after a tuning
    office.guard.undoes = [Reverted(remedy="optimizer.fused", why="slower by now: -12 %")]
    guest.ask("subscribe", every_ms=1_000_000)
    office.later(30)
    guarded(office)
    assert office.guard.asked == [2e6]
    assert any("the guard reverted optimizer.fused" in line for line in lines(guest))
    for _ in range(20):
        office.later(300)
    guarded(office)
    assert len(office.guard.asked) == 1  # nothing is left to watch over


def test_a_comparison_that_a_detach_interrupts_has_undone_nothing(office: Office, guest: Guest) -> None:
    tuned(office, guest)
    train(office, 1_900_000)
    office.guard.undoes = [Reverted(remedy="optimizer.fused", why="the session is detaching")]
    guest.ask("subscribe", every_ms=1_000_000)
    office.later(30)
    office.session.detach(False, lambda ending: None)
    guarded(office)
    assert office.guard.asked == [2e6]
    assert not any("the guard reverted" in line for line in lines(guest))


def test_what_a_comparison_has_off_for_a_block_counts_as_on(office: Office, guest: Guest) -> None:
    tuned(office, guest)
    assert office.session.begin_tuning() is None
    office.session.active.undo(3, lambda done: None)
    office.agent.answer("undo", arm=2, seq=270)
    assert office.session.snapshot().active == ["optimizer.fused"]
    office.session.end_tuning()
    assert office.session.snapshot().active == []


@pytest.mark.integration  # a long simulation
def test_a_job_that_slows_down_is_measured_by_its_new_pace(office: Office, guest: Guest) -> None:
    tuned(office, guest)
    train(office, 1_900_000)
    office.later(11)
    guarded(office)
    assert office.guard.asked == [2e6]
    office.later(300)
    guarded(office)
    assert len(office.guard.asked) == 1
    train(office, 3_000_000)
    office.later(300)
    guarded(office)
    assert office.guard.asked[1] == pytest.approx(3.8e6)


def test_remedies_that_the_user_undoes_are_not_watched_over(office: Office, guest: Guest) -> None:
    tuned(office, guest)
    office.session.active.undo(3, lambda done: None)
    office.agent.answer("undo", arm=2, seq=60)
    train(office, 1_900_000)
    office.later(60)
    guarded(office)
    assert office.guard.asked == []


def test_a_lost_loss_takes_off_what_does_not_keep_the_bits(office: Office, guest: Guest) -> None:
    tuned(office, guest)
    office.session.active.apply("gc.freeze", {}, lambda done: None)
    office.agent.answer("apply", token=4, arm=2, seq=270, **{"class": "bitwise"})
    for finite in (1, 0, 0, 0):
        office.writer.step(1_000_000, arm=2, backward_ns=400_000, loss_finite=finite)
    office.session.tick()
    office.later(1)
    assert office.agent.commands[-1] == ("undo", {"token": 3})
    assert [each for each in office.agent.asked if each == "undo"] == ["undo"]
    assert office.guard.asked == []


@pytest.mark.parametrize("refusal", [None, "it can't be asked"])
def test_each_goes_off_for_the_loss_in_turn(office: Office, guest: Guest, refusal: str | None) -> None:
    tuned(office, guest)
    office.session.active.apply("precision.tf32", {}, lambda done: None)
    office.agent.answer("apply", token=4, arm=2, seq=270, **{"class": "rounding"})
    guest.ask("subscribe", every_ms=1_000_000)
    for finite in (1, 0, 0, 0):
        office.writer.step(1_000_000, arm=2, backward_ns=400_000, loss_finite=finite)
    office.session.tick()
    office.later(1)
    for token, why in ((4, None), (3, refusal)):
        assert office.agent.commands[-1] == ("undo", {"token": token}), "ranks take one change at a time"
        assert not any(line.startswith("the guard reverted") for line in lines(guest))
        office.agent.answer("undo", ok=why is None, why=why)
        said = lines(guest)
        assert any(line.startswith("the guard reverted") for line in said) is (why is None)
        assert any("can't be reverted" in line for line in said) is (why is not None)


def lines(guest: Guest) -> list[str]:
    """What it is told until now."""
    return [str(guest.hear().get("body", {}).get("text")) for _ in iter(guest.hears_nothing, True)]


def test_a_loss_that_was_not_finite_before_is_the_jobs_own(office: Office, guest: Guest) -> None:
    for _ in range(3):
        office.writer.step(1_000_000, backward_ns=400_000, loss_finite=0)
    office.session.tick()
    tuned(office, guest)
    for _ in range(3):
        office.writer.step(1_000_000, arm=1, backward_ns=400_000, loss_finite=0)
    office.session.tick()
    office.later(1)
    assert "undo" not in office.agent.asked
