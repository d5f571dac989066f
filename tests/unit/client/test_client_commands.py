"""Durations, options and patience of the commands that speak to a session."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

from autobrrr.cli.verb_arguments import duration_s, session_options
from autobrrr.cli.verbs import attach, detach, diagnose
from autobrrr.client import diagnosing
from autobrrr.errors import UsageError
from autobrrr.records import Advice, Diagnosis, ProfilerWindow, Shares, SizeSweep, StepStats
from autobrrr.sidecar.process.session_options import SessionOptions
from support.judged import verdicts
from support.judged.diagnosis import facts

FEW_STEPS = StepStats(count=9, mean=1_500_000, median=1_420_000, p99=None)
NO_STEPS = StepStats(count=0, mean=None, median=None, p99=None)
diagnosis = partial(verdicts.diagnosis, state="tracing")


def parsed(module: object, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.prepare_parser(parser)  # type: ignore[attr-defined]
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("5m", 300), ("300ms", 0.3), ("1.5h", 5400), (" 2s ", 2), ("1ms", 0.001)],
)
def test_durations_are_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "10", "s", "-5s", "0s", "10 s", "1e3s", "10d", "\u0661s", "5m5s", "nan", "infs"]
)
def test_anything_else_is_no_duration_and_says_how_to_write_one(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 300ms"):
        duration_s(text)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ((), SessionOptions()),
        (("--no-probe",), SessionOptions(probing="off")),
        (("--probe",), SessionOptions()),
        (("--readonly",), SessionOptions(readonly=True)),
        (("--metrics", "[::1]:9464"), SessionOptions(metrics="[::1]:9464")),
        (("--outside", "--no-probe"), SessionOptions(outside=True, probing="off")),
    ],
)
def test_arguments_become_options(words: tuple[str, ...], options: SessionOptions) -> None:
    assert session_options(parsed(attach, "7", *words)) == options


@pytest.mark.parametrize("flag", ["--readonly", "--outside"])
def test_a_probe_contradicts_a_session_that_must_not_touch_the_job(flag: str) -> None:
    with pytest.raises(UsageError, match="do not allow"):
        session_options(parsed(attach, "7", "--probe", flag))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (attach, ("x",)),
        (attach, ("7", "--probe", "--no-probe")),
        (attach, ("7", "--json", "--plain")),
        (attach, ("7", "--for", "soon")),
        (diagnose, ("7", "--for", "10")),
        (diagnose, ("7", "--sweep", "depth")),
        (detach, ("7", "8")),
    ],
)
def test_words_that_make_no_sense_are_a_usage_error(module: object, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(module, *words)
    assert caught.value.code == 2


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_high_verdict_ends_the_waiting_at_once_but_of_overhead_after_a_moment() -> None:
    patience = diagnosing.Patience(clock_s=Clock())
    assert not patience.is_over(diagnosis(steps=10))
    assert patience.is_over(diagnosis(steps=10, confidence="high"))
    replaying = diagnosis(confidence="high", regime="overhead", state="probing")
    assert not patience.is_over(replaying)
    patience.began_s -= diagnosing.REPLAY_S
    assert patience.is_over(replaying)


MIXED = Shares(compute=0.4, memory=0.45, overhead=0.1, other=0.05)
LED = Shares(compute=0.1, memory=0.75, overhead=0.1, other=0.05)


@pytest.mark.parametrize(
    ("state", "shares", "ends"),
    [
        ("tracing", MIXED, False),  # sampled stacks place it still
        ("probing", MIXED, True),
        ("probing", LED, False),  # the probe may confirm it
        ("probing", Shares(), False),  # nothing is divided yet
        ("judged", LED, True),
    ],
)
def test_a_high_limit_ends_the_waiting_where_no_measurement_could_change_it(
    state: str, shares: Shares, ends: bool
) -> None:
    advice = [Advice(remedy="edit.embedding", reach="edit", class_="rounding")]
    limited = diagnosis(steps=30, limit="kernels", limit_confidence="high", shares=shares, state=state)
    limited = msgspec.structs.replace(limited, advice=advice)
    assert diagnosing.Patience(clock_s=Clock()).is_over(limited) is ends
    remedy = Advice(remedy="host.malloc", reach="relaunch", class_="bitwise", expected=1.06)
    limited = msgspec.structs.replace(limited, advice=[remedy])  # a replay may show an edit
    assert diagnosing.Patience(clock_s=Clock()).is_over(limited) is (state == "judged")
    bare = msgspec.structs.replace(limited, advice=[])  # shapes may bring some
    assert diagnosing.Patience(clock_s=Clock()).is_over(bare) is (ends and state != "probing")
    doubted = msgspec.structs.replace(limited, limit_confidence="low")
    assert not diagnosing.Patience(clock_s=Clock()).is_over(doubted)


def test_a_compiled_job_is_settled_once_it_was_profiled_and_thirty_steps_are_known() -> None:
    settled = diagnosis(
        steps=30, state="judged", job=facts(compiled=True), window=ProfilerWindow(status="ok")
    )
    assert diagnosing.Patience(clock_s=Clock()).is_over(settled)
    unread = {"window": ProfilerWindow(status="abstained")}
    for other in ({"steps": 29}, {"state": "profiling"}, {"job": facts()}, unread):
        earlier = msgspec.structs.replace(settled, **other)
        assert not diagnosing.Patience(clock_s=Clock()).is_over(earlier)


@pytest.mark.parametrize(("limit", "seconds"), [("host", 9), ("unknown", 13)])
def test_without_one_it_waits_nine_seconds_and_thirty_steps_and_longer_without_a_limit(
    limit: str, seconds: int
) -> None:
    clock = Clock()
    few, many = diagnosing.Patience(clock_s=clock), diagnosing.Patience(clock_s=clock)
    clock.now_s += 60  # until it is attached
    assert not any(each.is_over(diagnosis(steps=1, limit=limit)) for each in (few, many))
    clock.now_s += seconds - 1
    assert not many.is_over(diagnosis(steps=90, limit=limit))
    clock.now_s += 1
    assert not few.is_over(diagnosis(steps=29, limit=limit))
    assert many.is_over(diagnosis(steps=90, limit=limit))


@pytest.mark.parametrize("state", diagnosing.BEFORE_MEASURING)
def test_the_default_time_begins_with_the_first_measurement_and_a_given_one_with_the_command(
    state: str,
) -> None:
    clock = Clock()
    default, given = diagnosing.Patience(clock_s=clock), diagnosing.Patience(for_s=60, clock_s=clock)
    clock.now_s += 59
    assert not any(each.is_over(diagnosis(steps=400, state=state)) for each in (default, given))
    clock.now_s += 8
    assert not default.is_over(diagnosis(steps=500, limit="host"))
    assert given.is_over(diagnosis(steps=500))
    clock.now_s += 1
    assert default.is_over(diagnosis(steps=500, limit="host"))


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({"steps": 12, "t_ns": 60_000_000, "step_ns": FEW_STEPS}, "a step takes 1.42 ms so far"),
        ({"steps": 12, "t_ns": 600_000_000, "step_ns": NO_STEPS}, "timing its steps"),
        ({"steps": 0, "t_ns": 600_000_000, "step_ns": NO_STEPS}, "no step has ended yet"),
        ({"steps": 0, "t_ns": 200_000_000, "step_ns": NO_STEPS}, None),
    ],
)
def test_the_first_line_says_who_trains_and_how_long_a_step_takes(
    known: dict[str, object], line: str | None
) -> None:
    told: list[str] = []
    job = msgspec.structs.replace(facts(), script="/home/ada/train.py")
    client = Told(diagnosis(**known, job=job), diagnosis(**known, job=job, confidence="high"))
    diagnosing.await_verdict(client, diagnosing.Patience(clock_s=Clock()), told.append)  # type: ignore[arg-type]
    who = "attached to train.py (pid 4242): "
    assert [each for each in told if each.startswith("attached")] == ([f"{who}{line}"] if line else [])


def test_a_window_that_was_asked_for_is_waited_for_beyond_the_time_that_was_given() -> None:
    clock = Clock()
    patience = diagnosing.Patience(for_s=5, window=True, clock_s=clock)
    clock.now_s += 6
    assert not patience.is_over(diagnosis(steps=60, confidence="high"))
    assert patience.is_over(diagnosis(steps=60, window=ProfilerWindow(status="ok")))


class Told:
    """A session that has these snapshots to give."""

    def __init__(self, *snapshots: Diagnosis) -> None:
        self._snapshots = snapshots

    def snapshots(self, every_s: float) -> Iterator[Diagnosis]:
        yield from self._snapshots

    def unsubscribe(self) -> None:
        pass


@pytest.mark.parametrize("state", ["watching", "profiling"])
def test_however_long_a_step_is_an_answer_comes_in_twenty_seconds(state: str) -> None:
    clock = Clock()
    patience, asked = diagnosing.Patience(clock_s=clock), diagnosing.Patience(window=True, clock_s=clock)
    for steps in (0, 1):
        assert not any(each.is_over(diagnosis(steps=steps, state=state)) for each in (patience, asked))
        clock.now_s += 10
    assert patience.is_over(diagnosis(steps=1, state=state))
    assert not asked.is_over(diagnosis(steps=1, state=state))
    clock.now_s += 61  # without a step
    assert asked.is_over(diagnosis(steps=1, state=state))


def test_a_window_that_is_on_is_waited_for_and_one_that_never_ends_is_not() -> None:
    clock = Clock()
    patience = diagnosing.Patience(for_s=6, clock_s=clock)
    assert not patience.is_over(diagnosis(steps=100, state="sampling"))
    clock.now_s += 7
    assert not patience.is_over(diagnosis(steps=100, state="profiling"))
    assert patience.is_over(diagnosis(steps=100, state="sampling"))
    clock.now_s += diagnosing.WINDOW_S
    assert patience.is_over(diagnosis(steps=100, state="profiling"))


def test_a_sweep_that_was_asked_for_is_waited_for_unless_time_is_given() -> None:
    clock = Clock()
    patience = diagnosing.Patience(sweep=True, clock_s=clock)
    assert not patience.is_over(diagnosis(steps=90, confidence="high"))
    clock.now_s += 30
    swept = SizeSweep(along="batch", status="abstained", why="busy")
    assert patience.is_over(diagnosis(steps=95, confidence="high", sweep=swept))
    assert patience.is_over(diagnosis(steps=99, sweep=swept))
    short = diagnosing.Patience(for_s=20, sweep=True, clock_s=clock)
    clock.now_s += 20
    assert short.is_over(diagnosis(steps=200))
