"""The ledger sums to the step, and names lines that the user can change."""

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.diagnosis.ledger import ledger, loading_parts, placed_trends, wheres
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import CodeSite, FrameCount, FrameSamples
from support.judged.diagnosis import MS, frames, machine, measured, sampled, traced

SHARES = {"data_wait": 0.02, "forward": 0.2, "backward": 0.2, "optimizer": 0.1, "other": 0.48}


def place(where: str, phase: str, samples: int, does: str = "", **more: object) -> FrameCount:
    in_loader = phase == "data_wait"
    fields = {"where": where, "phase": phase, "in_loader": in_loader, "samples": samples, "does": does}
    return msgspec.convert({**fields, "ns": samples * 10 * MS, **more}, FrameCount)


def stacks(*places: FrameCount, **more: object) -> FrameSamples:
    found = FrameSamples(
        samples=sum(one.samples for one in places), places=list(places), ns=sum(one.ns for one in places)
    )
    return msgspec.structs.replace(found, **more)


def job(found: FrameSamples | None, **more: object) -> Measurements:
    return measured(8 * MS, SHARES, stacks=found, trace=traced(8 * MS, SHARES), **more)  # type: ignore[arg-type]


GUARDED = stacks(
    place("train.py:20 guard", "other", 15),
    place("train.py:22 guard", "other", 40),
    place("train.py:40 <module>", "backward", 50),
    place("train.py:41 <module>", "optimizer", 25),
    place("train.py:38 <module>", "forward", 20),
)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 9), st.sampled_from(["data_wait", "forward", "backward", "optimizer", "other"]),
            st.integers(0, 400), st.integers(0, 10**9),
        ),
        max_size=60,
    )
)  # fmt: skip
def test_rows_sum_to_the_step(drawn: list[tuple[int, str, int, int]]) -> None:
    places = [place(f"a.py:{line} f", phase, samples, ns=ns) for line, phase, samples, ns in drawn]
    rows = ledger(job(stacks(*places)))
    phases = sampled(8 * MS, SHARES)
    assert sum(row.ns for row in rows) == phases.step_ns
    assert all(row.ns > 0 for row in rows)


def test_a_function_is_told_with_all_its_lines_and_before_the_lines_that_run_the_model() -> None:
    first, *others = wheres(job(GUARDED))
    assert (first.place, first.phase) == ("train.py:22 guard", "other")
    assert first.share == pytest.approx(55 / 150, abs=1e-3)
    assert [row.line for row in others] == [40, 41, 38]


def test_a_backward_comes_after_the_function_that_it_goes_back_through() -> None:
    looks = place("train.py:40 <module>", "backward", 60), place("train.py:41 <module>", "optimizer", 25)
    for others, lines in (
        ([place("model.py:24 forward", "forward", 30)], [24, 40, 41]),
        ([place("train.py:38 <module>", "forward", 30)], [40, 38, 41]),
    ):
        assert [row.line for row in wheres(job(stacks(*looks, *others)))] == lines


def test_lines_are_told_of_steps_that_don_t_count_yet_and_not_of_what_comes_before_the_first() -> None:
    looks = stacks(
        place("helpers.py:25 char_tensor", "other", 40), place("model.py:26 forward", "forward", 39)
    )
    begun = Measurements(pid=7, seen=6, frames=looks)
    assert [row.place for row in wheres(begun)] == ["helpers.py:25 char_tensor", "model.py:26 forward"]
    assert wheres(dataclasses.replace(begun, seen=0)) == []


def test_time_since_the_look_before_weighs_and_not_the_number_of_looks() -> None:
    held = stacks(
        place("train.py:9 holds_the_interpreter", "other", 10, ns=900 * MS),
        place("train.py:40 <module>", "backward", 50, ns=100 * MS),
    )
    assert wheres(job(held))[0].share == pytest.approx(0.9)


def test_a_few_looks_name_no_line() -> None:
    few = stacks(place("train.py:22 guard", "other", 3), place("train.py:40 <module>", "backward", 90))
    assert [row.line for row in wheres(job(few))] == [40]
    none = stacks(place("train.py:22 guard", "other", 12))
    assert wheres(job(none)) == []
    assert all(row.where is None for row in ledger(job(none)))


def test_where_others_have_the_cpus_a_phase_is_as_long_as_its_clock_says() -> None:
    waiting = stacks(place("train.py:22 guard", "other", 5), place("train.py:40 <module>", "backward", 95))
    busy = {row.line: row.share for row in wheres(job(waiting, host=machine(run_delay_share=0.7)))}
    assert busy == {22: SHARES["other"], 40: SHARES["backward"]}
    rows = ledger(job(waiting, host=machine(run_delay_share=0.7)))
    assert {row.phase for row in rows if row.source == "phase clock"} == {"data_wait", "forward", "optimizer"}


def test_what_no_clock_measures_is_told_from_what_lies_between_the_phases() -> None:
    compiled = {"data_wait": 0.0, "backward": 0.2, "other": 0.8}
    looks = stacks(
        place("train.py:22 guard", "other", 5),
        place("train.py:38 <module>", "forward", 60),
        place("train.py:40 <module>", "backward", 35),
    )
    found = wheres(measured(8 * MS, compiled, stacks=looks, host=machine(run_delay_share=0.7)))
    assert {row.line: round(row.share, 2) for row in found} == {22: 0.06, 38: 0.74, 40: 0.2}


def test_the_call_under_which_a_library_trains_is_no_line_to_change() -> None:
    phases = ("forward", "backward", "optimizer", "other")
    trainer = stacks(*(place("train.py:99 main", phase, 20) for phase in phases))
    assert wheres(job(trainer)) == []


@pytest.mark.parametrize(("others", "where"), [(20, "model.py:28 hook"), (60, None)])
def test_growth_is_told_at_the_only_line_that_takes_as_much(others: int, where: str | None) -> None:
    looks = stacks(place("model.py:28 hook", "forward", 80), place("train.py:57 main", "backward", others))
    alone, took = job(looks, host=machine(foreign_cores=0.0)), np.linspace(60, 100, 120).astype(np.int64) * MS
    told = placed_trends(dataclasses.replace(alone, step_ns=took))
    assert [(one.what, one.where) for one in told] == [("step", where)]


def test_a_line_that_calls_backward_again_and_again_is_the_costliest_line() -> None:
    looks = stacks(place("net.py:26 forward", "forward", 12), place("train.py:64 step", "backward", 78))
    loop = msgspec.structs.replace(looks, places=[*looks.places, place("train.py:65 step", "optimizer", 10)])
    assert wheres(job(loop))[0].line == 26
    site = CodeSite(what="repeats backward", where="train.py:64 step", samples=78)
    assert wheres(job(msgspec.structs.replace(loop, code=[site])))[0].line == 64


def test_a_line_that_runs_forward_and_backward_is_told_as_two() -> None:
    both = stacks(place("train.py:9 main", "forward", 36), place("train.py:9 main", "backward", 64))
    rows = {row.phase: row.share for row in wheres(job(both))}
    assert rows == pytest.approx({"forward": 0.36, "backward": 0.64})


def test_a_function_that_trains_is_told_line_by_line() -> None:
    phases = {38: "forward", 40: "backward", 41: "optimizer", 44: "other"}
    looks = stacks(*(place(f"train.py:{line} train", phase, 25) for line, phase in phases.items()))
    rows = wheres(job(looks))
    assert {row.line: row.share for row in rows} == dict.fromkeys(phases, 0.25)
    assert rows[0].line == 44


def test_waiting_for_workers_is_told_by_what_they_do() -> None:
    waiting = stacks(
        place("train.py:30 <module>", "data_wait", 80, "waits for workers"),
        place("train.py:40 <module>", "backward", 20),
        workers=[("data.py:7 __getitem__", 90), ("data.py:5 __getitem__", 10)],
        worker_looks=100,
    )
    top = wheres(job(waiting))[0]
    assert (top.place, top.does) == ("data.py:7 __getitem__", "loader worker")
    assert top.share == pytest.approx(0.8)
    idle = msgspec.structs.replace(waiting, worker_looks=1000)
    assert loading_parts(job(idle))["waits for workers"].share == pytest.approx(0.72)


def collected(share: float, code: list[CodeSite]) -> Measurements:
    found = job(msgspec.structs.replace(GUARDED, code=code))
    figures = dataclasses.replace(found.phases, garbage_ns=share * found.phases.step_ns)
    return dataclasses.replace(found, phases=figures)


def test_garbage_comes_off_the_line_that_collects() -> None:
    by_hand = [CodeSite(what="calls collect", where="train.py:22 guard", samples=9)]
    rows = {(row.kind, row.where): row.share for row in ledger(collected(0.2, by_hand))}
    assert rows["garbage", "train.py:22 guard"] == pytest.approx(0.2)
    assert rows["operators", "train.py:40 <module>"] == pytest.approx(1 / 3, abs=1e-3)
    automatic = {(row.kind, row.where): row.share for row in ledger(collected(0.2, []))}
    assert automatic["garbage", None] == pytest.approx(0.2)
    assert automatic["operators", "train.py:40 <module>"] == pytest.approx(0.8 / 3, abs=1e-3)


def test_garbage_that_takes_half_of_the_step_limits_it() -> None:
    by_hand = [CodeSite(what="calls collect", where="train.py:22 guard", samples=9)]
    verdict = judge(collected(0.93, by_hand)).verdict
    assert (verdict.limit, verdict.limit_confidence) == ("garbage", "high")
    expected = "the garbage collector takes 93 % of a step, called at train.py:22 guard"
    assert verdict.limit_reason == expected
    assert judge(collected(0.4, by_hand)).verdict.limit != "garbage"


@pytest.mark.parametrize(
    ("does", "said", "not_advised"),
    [
        ("sampler", "the sampler runs in the training process", ("loader.workers", "loader.prefetch_factor")),
        ("worker start", "workers start anew in each epoch", ("loader.workers",)),
        ("loader worker", "2 workers are busy", ("loader.persistent_workers",)),
    ],
)
def test_what_loading_waits_for_is_said_before_the_queue_is_looked_at(
    does: str, said: str, not_advised: tuple[str, ...]
) -> None:
    shares = {"data_wait": 0.85, "forward": 0.05, "backward": 0.05, "optimizer": 0.05, "other": 0.0}
    found = stacks(
        place("train.py:23 <listcomp>", "data_wait", 130, does),
        place("train.py:40 <module>", "backward", 20),
        queue_empty_share=0.02,  # the workers keep up
    )
    trace = traced(8 * MS, shares)
    verdict = judge(measured(8 * MS, shares, stacks=found, trace=trace, workers=2)).verdict
    assert verdict.regime == "input"
    assert said in verdict.adds
    assert "train.py:23 <listcomp>" in verdict.adds
    assert not {one.remedy for one in verdict.advice} & set(not_advised)
    if does == "worker start":
        assert verdict.advice[0].remedy == "loader.persistent_workers"
        assert verdict.advice[0].expected == pytest.approx(150 / 20, rel=0.01)


def test_an_agent_that_tells_no_time_is_read_by_the_number_of_its_looks() -> None:
    assert wheres(job(frames(host=60, model=40)))[0].share == pytest.approx(0.6)
