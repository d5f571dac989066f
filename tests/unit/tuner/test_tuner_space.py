"""What is tried, in which order, how it is kept in the study, and how remedies are switched."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.errors import UsageError
from autobrrr.records import Advice, Verdict, from_registry
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.candidate_space import (
    Selection,
    allowed_classes,
    allows_unproven,
    candidates,
    conflicts,
    thread_counts,
    unasked,
)
from autobrrr.tuner.comparison import undo_losses
from autobrrr.tuner.job_under_test import NotApplied, RemedyLost
from support.simulated.tuner import Effect, SimulatedJob, verdict

FUSED, FOREACH = from_registry("optimizer.fused"), from_registry("optimizer.foreach")
ONE_THREAD = from_registry("threads.intra_op", {"threads": 1})
BOTH = ("bitwise", "rounding")


def names(found: list[Advice]) -> list[str]:
    return [candidate.label for candidate in found]


def test_what_is_advised_and_not_allowed_comes_with_the_flag_that_tries_it() -> None:
    advised = [from_registry("loader.workers", {"workers": 8}), from_registry("batch.larger")]
    found = unasked(verdict=msgspec.structs.replace(verdict(), advice=advised), selection=Selection())
    assert [(each.label, why) for each, why in found] == [
        ("loader.workers(workers=8)", "its class is stream; --allow stream tries it")
    ]


def test_the_largest_predicted_gain_comes_first() -> None:
    facts = SimulatedJob().facts
    found = candidates(
        facts=facts,
        cores=2,
        verdict=verdict(threads_intra_op=1.1, optimizer_fused=1.6),
        selection=Selection(),
    )
    assert names(found)[:2] == ["optimizer.fused", "threads.intra_op(threads=1)"]
    assert found[0].expected == 1.6


def test_without_a_verdict_all_are_tried_and_rare_steps_come_last() -> None:
    found = candidates(facts=SimulatedJob().facts, cores=2, verdict=None, selection=Selection())
    assert {"optimizer.fused", "optimizer.foreach", "threads.intra_op(threads=1)"} <= set(names(found))
    rare = [REGISTRY[candidate.remedy].rare for candidate in found]
    assert rare == sorted(rare)


def test_garbage_collection_is_left_alone_but_where_a_gain_is_predicted_or_by_name() -> None:
    facts = SimulatedJob().facts

    def tried(told: Verdict | None, only: tuple[str, ...] = ()) -> list[str]:
        return names(candidates(facts=facts, cores=2, verdict=told, selection=Selection(only=only)))

    assert "gc.freeze" not in tried(verdict(optimizer_fused=1.2))
    assert tried(verdict(optimizer_fused=1.2, gc_freeze=14.0))[0] == "gc.freeze"
    assert tried(None, ("gc.freeze",)) == ["gc.freeze"]


def test_the_present_thread_count_is_not_tried() -> None:
    assert thread_counts(1, 2) == [2]
    assert thread_counts(2, 2) == [1]
    assert thread_counts(64, 64) == [1, 32, 16]
    assert thread_counts(None, None) == [1]


def test_fewer_threads_are_tried_early_and_more_threads_late() -> None:
    fewer = candidates(facts=SimulatedJob(threads=2).facts, cores=2, verdict=None, selection=Selection())
    assert names(fewer)[0] == "threads.intra_op(threads=1)"
    more = names(
        candidates(facts=SimulatedJob(threads=1).facts, cores=2, verdict=None, selection=Selection())
    )
    assert more[0] == "optimizer.fused"
    assert more.index("threads.intra_op(threads=2)") > more.index("optimizer.foreach")


def test_allow_widens_and_narrows() -> None:
    assert allowed_classes(None) == BOTH
    assert allowed_classes("bitwise") == ("bitwise",)
    assert allowed_classes("changes-training") == ("bitwise", "rounding", "stream", "changes-training")
    with pytest.raises(UsageError, match="no such class"):
        allowed_classes("fast")


def test_what_no_device_has_run_is_tried_where_it_is_allowed() -> None:
    facts = msgspec.structs.replace(SimulatedJob().facts, cuda=True)

    def tried(allow: str | None) -> set[str]:
        selection = Selection(allowed=allowed_classes(allow), unproven=allows_unproven(allow))
        found = candidates(facts=facts, cores=2, verdict=None, selection=selection)
        return {each.remedy for each in found}

    assert not {name for name in tried("changes-training") if REGISTRY[name].unproven}
    assert allowed_classes("unproven") == BOTH
    assert "compile.reduce_overhead" in tried("stream,unproven")
    assert tried("stream,unproven") > tried("stream")


def test_choices_conflict_where_they_set_the_same_thing() -> None:
    assert conflicts(FUSED, FOREACH)
    assert conflicts(ONE_THREAD, from_registry("threads.intra_op", {"threads": 2}))
    assert not conflicts(FUSED, ONE_THREAD)


def test_the_number_of_threads_does_not_change_under_compiled_code_but_code_may_be_compiled_for_it() -> None:
    compiled = from_registry("compile.default")
    assert conflicts(ONE_THREAD, compiled)
    assert not conflicts(compiled, ONE_THREAD)
    assert not set(REGISTRY[compiled.remedy].targets) & set(REGISTRY[ONE_THREAD.remedy].targets)


def test_the_switchboard_only_switches_what_differs() -> None:
    job = SimulatedJob()
    board = ArmSwitch(job)
    board.go((FUSED, ONE_THREAD))
    job.history.clear()
    seq, switched = board.go((FUSED,))
    assert job.history == [("undo", "threads.intra_op")]
    assert switched
    assert seq == job.next_seq()
    assert board.go((FUSED,)) == (job.next_seq(), False)


def test_what_conflicts_is_off_before_the_other_comes_on() -> None:
    job = SimulatedJob()
    board = ArmSwitch(job)
    board.go((FUSED,))
    board.go((FOREACH,))
    assert job.history[-2:] == [("undo", "optimizer.fused"), ("apply", "optimizer.foreach")]


def test_a_refused_remedy_leaves_the_others_as_they_are() -> None:
    job = SimulatedJob(effects={"optimizer.fused": Effect(refuses="no")})
    board = ArmSwitch(job)
    board.go((ONE_THREAD,))
    with pytest.raises(NotApplied):
        board.go((ONE_THREAD, FUSED))
    assert board.active == (ONE_THREAD,)
    assert job.names_on == ["threads.intra_op"]


def test_a_lost_remedy_is_told_once_and_forgotten() -> None:
    job = SimulatedJob(effects={"optimizer.fused": Effect(lost_after_steps=3)})
    board = ArmSwitch(job)
    board.go((FUSED,))
    job.steps(job.next_seq(), 10, 10**9)
    with pytest.raises(RemedyLost, match="replaced its optimizer"):
        board.go((FUSED,))
    assert board.active == ()
    assert FUSED in board.lost


@given(st.lists(st.sets(st.sampled_from([FUSED, FOREACH, ONE_THREAD])), max_size=12))
def test_after_any_way_through_the_arms_exactly_the_last_is_on(arms: list[set[Advice]]) -> None:
    job = SimulatedJob()
    board = ArmSwitch(job)
    for arm in [*arms, set()]:
        board.go(tuple(arm))
        assert sorted(job.names_on) == sorted(choice.remedy for choice in arm)
    assert job.on == {}


def guarded(speed: float) -> tuple[SimulatedJob, list[str]]:
    """A job with a remedy on, after the guard has looked; and what it undid."""
    job = SimulatedJob(effects={"optimizer.fused": Effect(speed=speed)})
    board = ArmSwitch(job)
    board.go((FUSED,))
    return job, [each.remedy for each in undo_losses(job, board, 1e6)]


def test_the_guard_undoes_what_has_turned_bad() -> None:
    job, undone = guarded(0.85)
    assert undone == ["optimizer.fused"]
    assert job.names_on == []


@pytest.mark.integration  # a long simulation
def test_the_guard_leaves_what_still_pays_and_what_makes_no_difference() -> None:
    for speed in (1.2, 1.0):
        job, undone = guarded(speed)
        assert undone == []
        assert job.names_on == ["optimizer.fused"]
