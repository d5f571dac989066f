"""Growth and periods are told where they are there, and never of noise."""

import dataclasses

import msgspec
import numpy as np
import pytest

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.trends import trends
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import FrameCount, HostSample
from support.judged.diagnosis import MS, frames, machine, measured, traced

MB = 1 << 20


def job(step_ns: np.ndarray, rss: list[float] | None = None) -> Measurements:
    held = tuple((at * 500 * MS, int(each * MB)) for at, each in enumerate(rss or []))
    return dataclasses.replace(measured(), step_ns=step_ns.astype(np.int64), held=held)


def noise(seed: int, steps: int, level: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(np.log(8 * MS), level, steps)


def test_steps_that_grow_are_told_with_the_line() -> None:
    grown = dataclasses.replace(
        job(noise(0, 300) * np.linspace(1, 1.5, 300)), frames=frames(host=90, model=60)
    )
    verdict = judge(grown).verdict
    (found,) = verdict.trends
    assert (found.what, found.kind, found.where) == ("step", "grows", "train.py:77 log_metrics")
    assert 0.3 * 4 * MS / 300 < (found.per_step or 0) <= 4.4 * MS / 300
    assert found.words.startswith("steps grow, from 8")
    assert "edit.running_figure" in {one.remedy for one in verdict.advice}


def test_steps_that_grow_beside_others_without_code_of_the_users_are_not_told() -> None:
    grown = dataclasses.replace(job(noise(0, 300) * np.linspace(1, 1.5, 300)), frames=frames(model=150))
    for cores, told in ((0.1, 1), (0.9, 0)):
        beside = dataclasses.replace(grown, host=machine(foreign_cores=cores))
        verdict = judge(beside).verdict
        assert len(verdict.trends) == told
        gains = [one.expected for one in verdict.advice if one.remedy == "edit.running_figure"]
        assert gains == [pytest.approx(1.4, abs=0.1)] * told  # for what it grew by, not for all of the model


@pytest.mark.parametrize("comes_at", [60, 150, 240])
def test_steps_that_another_program_makes_longer_at_once_do_not_grow(comes_at: int) -> None:
    longer = noise(0, 300) * np.where(np.arange(300) < comes_at, 1.0, 1.8)
    assert judge(dataclasses.replace(job(longer), frames=frames(host=90, model=60))).verdict.trends == []


@pytest.mark.integration  # a long simulation
def test_noise_is_a_trend_in_no_more_than_one_series_of_a_thousand() -> None:
    draw, told = np.random.default_rng(0), 0
    for seed in range(1000):
        steps, level, rss = int(draw.integers(2, 600)), draw.uniform(0.01, 0.5), draw.normal(500, 20, 50)
        found = trends(job(noise(seed, steps, level), list(rss)))
        told += any(one.kind == "grows" for one in found)
    assert told <= 1


@pytest.mark.parametrize(
    "rss", [[500.0 + 3 * at for at in range(50)], [500.0 + 0.2 * at for at in range(50)]]
)
def test_memory_that_grows_is_told_by_step_from_some_megabytes_on(rss: list[float]) -> None:
    found = [one for one in trends(job(noise(1, 300, 0.01), rss)) if one.what == "memory"]
    assert len(found) == (rss[1] - rss[0] > 1)
    for one in found:
        assert one.per_step == pytest.approx(3 * MB * 8 / 500, rel=0.1)
        assert "memory grows by 4" in one.words


def test_memory_that_comes_at_once_does_not_grow() -> None:
    assert trends(job(noise(1, 300, 0.01), [500.0] * 20 + [900.0] * 30)) == []


def test_memory_that_grows_while_it_is_measured_is_ours_unless_it_grows_all_the_time() -> None:
    def seen(rss: list[float], steps: int = 1900, each: float = 1.0, measured_at: int = 24) -> list[str]:
        growing = job(noise(1, steps, 0.01) * each, rss)  # 15.2 s of steps, in 15 s of looks
        measured_ns = growing.held[measured_at][0]
        return [one.what for one in trends(dataclasses.replace(growing, measured_ns=measured_ns))]

    always = [500.0 + 3 * at for at in range(30)]
    assert seen(always) == ["memory"]
    assert seen(always, steps=19, each=100.0) == []  # in long steps it may come and go
    assert seen(always, steps=300) == []  # most of the time there was no step
    assert seen(always[:25] + [always[24]] * 5) == []
    at_times = [held - 20 * (at % 5 == 4) for at, held in enumerate(500.0 + 6 * at for at in range(30))]
    assert seen(at_times) == []
    assert seen(at_times, measured_at=2) == ["memory"]


def test_long_steps_at_a_period_are_told_and_those_that_come_as_they_like_are_not() -> None:
    steps = noise(2, 200, 0.02)
    steps[9::10] *= 1.9
    (found,) = trends(job(steps))
    assert (found.kind, found.every) == ("periodic", 10)
    assert found.words.startswith("every 10 steps one takes 15")
    anywhere = noise(2, 200, 0.02)
    anywhere[np.random.default_rng(5).choice(200, 20, replace=False)] *= 1.9
    assert trends(job(anywhere)) == []


def test_on_a_busy_machine_nothing_is_said_to_grow() -> None:
    grown = job(noise(0, 300) * np.linspace(1, 2, 300))
    busy: tuple[HostSample, ...] = machine(run_delay_share=0.4)
    assert judge(dataclasses.replace(grown, host=busy)).verdict.trends == []


@pytest.mark.parametrize(
    ("operations", "told"),
    [([800, 816, 832], 1), ([800, 816, 840], 0), ([800, 784, 768], 0), ([800, 816], 0)],
)
def test_steps_of_ever_more_operators_grow_on_a_busy_machine_too(operations: list[int], told: int) -> None:
    trace = msgspec.structs.replace(traced(8 * MS), operations=operations)
    grown = job(noise(3, 26, 0.15) * np.linspace(1, 1.5, 26))
    busy = dataclasses.replace(
        grown, host=machine(run_delay_share=0.3), traced=trace, frames=frames(host=60, model=90)
    )
    verdict = judge(busy).verdict
    assert [one.where for one in verdict.trends] == ["train.py:77 log_metrics"] * told
    assert [one.remedy for one in verdict.advice].count("edit.running_figure") == told
    even = dataclasses.replace(busy, step_ns=noise(3, 26, 0.01).astype(np.int64))
    assert judge(even).verdict.trends == []
    calls = [FrameCount(where="net.py:25 forward", phase="forward", in_loader=False, samples=8)]
    calls += [FrameCount(where="train.py:69 main", phase="backward", in_loader=False, samples=88)]
    chained = dataclasses.replace(busy, frames=msgspec.structs.replace(frames(model=96), places=calls))
    assert [one.where for one in judge(chained).verdict.trends] == ["train.py:69 main"] * told


@pytest.mark.parametrize(("took", "told"), [(640.0, 1), (9.0, 0)])
def test_steps_with_an_evaluation_are_told_with_their_period_and_share(took: float, told: int) -> None:
    evaluated = tuple((20 * at, int(took * MS)) for at in range(1, 6))
    places = [
        FrameCount(
            where="train.py:39 forward", phase="forward", in_loader=False, samples=90, long_ns=60 * MS
        ),
        FrameCount(where="train.py:67 step", phase="backward", in_loader=False, samples=60),
    ]
    stacks = msgspec.structs.replace(frames(model=150), places=places)
    verdict = judge(dataclasses.replace(job(noise(1, 100, 0.02)), evaluated=evaluated, frames=stacks)).verdict
    words = "every 20 steps one takes 640 ms instead of 8.00 ms, most at train.py:39 forward"
    assert [one.words for one in verdict.trends] == [words] * told
    edits = [one for one in verdict.advice if one.remedy == "edit.evaluate_less"]
    assert [one.expected for one in edits] == [pytest.approx(1 / (1 - 0.9 * 0.79), rel=0.02)] * told


def test_workers_that_an_evaluation_starts_anew_are_no_reason_to_evaluate_less() -> None:
    for does, told in (("worker start", False), ("", True)):
        place = FrameCount(
            where="train.py:67 test", phase="other", in_loader=False, samples=90, long_ns=60 * MS, does=does
        )
        stacks = msgspec.structs.replace(frames(model=150), places=[place])
        evaluated = tuple((20 * at, 640 * MS) for at in range(1, 6))
        seen = dataclasses.replace(job(noise(1, 100, 0.02)), evaluated=evaluated, frames=stacks)
        assert ("edit.evaluate_less" in {one.remedy for one in judge(seen).verdict.advice}) == told


@pytest.mark.parametrize(("times", "every"), [(5, 20), (1, 10)])
def test_an_evaluation_that_nobody_looked_into_is_placed_nowhere(times: int, every: int) -> None:
    evaluated = tuple((20 * at, 640 * MS) for at in range(1, 1 + times))
    steps = noise(1, 100, 0.02)
    if times == 1:
        steps[9::10] *= 1.9  # long steps of another kind
    stacks = frames(host=90, model=60)
    verdict = judge(dataclasses.replace(job(steps), evaluated=evaluated, frames=stacks)).verdict
    assert [(one.every, one.where) for one in verdict.trends] == [(every, None)]
    assert any("evaluation takes 79 % of the time: " in one.why for one in verdict.advice) == (times > 1)


def test_one_evaluation_says_nothing_of_its_part_of_the_time() -> None:
    steps = noise(1, 100, 0.02)
    steps[9::10] *= 1.9  # with a place of their own
    place = FrameCount(where="train.py:67 save", phase="other", in_loader=False, samples=90, long_ns=60 * MS)
    stacks = msgspec.structs.replace(frames(model=150), places=[place])
    seen = dataclasses.replace(job(steps), evaluated=((50, 640 * MS),), frames=stacks)
    assert "edit.evaluate_less" not in {one.remedy for one in judge(seen).verdict.advice}
