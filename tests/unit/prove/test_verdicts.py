"""The verdict from what was counted and timed: proven, not slower, not proven, refused."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from autobrrr.prove import referee
from autobrrr.prove.referee import Counted, Question, counted
from autobrrr.records.proof_records import Proof, WorkRefusal
from autobrrr.relaunch.study.command_refusals import Unmeasurable
from autobrrr.relaunch.study.start_statistics import StartResult, StartRule, gain_interval
from autobrrr.relaunch.study.timed_turns import TimedTurns
from autobrrr.relaunch.trial.live_trial import TrialLaunch
from autobrrr.relaunch.trial.trial_endings import Kind, TrialEnding
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from support.accounts import account

LAUNCH = TrialLaunch(command=("python", "train.py"), environment={}, folder=Path("/"))
FACTORY = cast(TrialFactory, SimpleNamespace(begin=print))
SAME = counted(account(), account(), account(), ("bitwise", "rounding"))


def filled(gains: tuple[float, ...], whole: float, luck: float) -> TimedTurns:
    turns = TimedTurns({})
    turns.results = [StartResult(gain=gain, luck=luck) for gain in gains]
    for side, rate in (("before", 100.0), ("twin", 100.0), ("after", 100.0 * whole)):
        turns.seen[side].steps, turns.seen[side].running_ns = int(rate), 10**9
    return turns


def judged(
    gains: tuple[float, ...],
    *,
    gate: float | None = None,
    whole: float = 1.2,
    luck: float = 0.001,
    work: Counted = SAME,
) -> Proof:
    turns = filled(gains, whole, luck)
    question = Question(before=LAUNCH, after=LAUNCH, allowed=("bitwise", "rounding"), gate=gate)
    rule = StartRule(gate=gate, interval=gain_interval(turns.results, 0.01) if gains else None)
    return referee._judged(question, work, turns, rule, time.perf_counter_ns() - 60 * 10**9)


def test_a_clear_gain_is_proven() -> None:
    found = judged((0.20, 0.21, 0.19))
    assert (found.verdict, found.refusals) == ("proven", [])
    assert found.speed.interval[0] > 1.1


@pytest.mark.parametrize("gains", [(0.0, 0.001, -0.001), (-0.1, -0.11, -0.1), (0.3, -0.2, 0.1)])
def test_no_gain_a_loss_and_noise_are_not_proven(gains: tuple[float, ...]) -> None:
    assert judged(gains).verdict == "not_proven"


@pytest.mark.parametrize(
    ("gains", "begins", "ends"),
    [((-0.1, -0.11, -0.1), "it is slower: 0.90x", "a second"), ((0.3, -0.2, 0.1), "1.07x", "may be no gain")],
)
def test_a_loss_and_an_open_question_are_said_apart(gains: tuple[float, ...], begins: str, ends: str) -> None:
    reason = judged(gains).reason
    assert reason.startswith(begins)
    assert reason.endswith(ends)


def test_a_gate_that_hours_would_not_reach_has_another_remedy() -> None:
    near = judged((-0.02, 0.02, 0.0), gate=0.02, whole=1.0, luck=0.02).refusals[0].why
    far = judged((-0.02, 0.02, 0.0), gate=0.001, whole=1.0, luck=0.02).refusals[0].why
    assert "--for " in near
    assert "a quieter machine, or a wider gate" in far


def test_a_gain_that_rare_long_steps_take_back_is_not_proven() -> None:
    assert judged((0.20, 0.21, 0.19), whole=0.9).verdict == "not_proven"


def test_what_rare_long_steps_take_back_is_said_beside_the_gain() -> None:
    assert "1.01x with rare long ones" in judged((0.20, 0.21, 0.19), whole=1.01).reason
    assert "0.90x with rare long ones" in judged((0.20, 0.21, 0.19), whole=0.9).reason
    assert "rare" not in judged((0.20, 0.21, 0.19), whole=1.21).reason


def test_within_the_gate_it_is_not_slower() -> None:
    assert judged((-0.002, 0.0, 0.002), gate=0.03, whole=1.0).verdict == "not_slower"
    assert judged((-0.06, -0.061, -0.06), gate=0.03, whole=0.94).verdict == "not_proven"


def test_a_gate_below_the_noise_is_refused_with_the_time_it_needs() -> None:
    found = judged((-0.02, 0.02, 0.0), gate=0.003, whole=1.0, luck=0.02)
    assert [each.code for each in found.refusals] == [WorkRefusal.GATE_TOO_FINE]
    assert found.needed_ns > found.elapsed_ns


@pytest.mark.parametrize(("steps", "ended", "verdict"), [(4, False, "not_proven"), (4, True, "proven")])
def test_few_steps_conclude_nothing_unless_the_runs_end(steps: int, verdict: str, *, ended: bool) -> None:
    runs = [account(steps, ended=ended) for _ in range(3)]
    found = counted(*runs, ("bitwise", "rounding"))
    assert judged((0.20, 0.21, 0.19), work=found).verdict == verdict


def test_without_two_starts_nothing_is_proven() -> None:
    assert judged(()).verdict == "not_proven"


def test_a_class_that_is_not_allowed_is_refused_and_one_that_is_allowed_is_not() -> None:
    after = account(loss=9.0)
    narrow = counted(account(), account(), after, ("bitwise", "rounding"))
    wide = counted(account(), account(), after, ("bitwise", "rounding", "stream", "changes-training"))
    assert [each.code for each in narrow.refusals] == [WorkRefusal.CHANGES_TRAINING]
    assert wide.refusals == []


def test_shorter_numbers_may_be_allowed_but_not_less_work() -> None:
    everything = ("bitwise", "rounding", "stream", "changes-training")
    short = account(flops={"bfloat16": 1000}, loss=9.0)
    assert counted(account(), account(), short, everything).refusals == []  # type: ignore[arg-type]
    skipped = account(backwards=0, loss=9.0)
    assert counted(account(), account(), skipped, everything).refusals  # type: ignore[arg-type]


def test_timed_steps_are_compared_before_anything_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def count(question: Question, factory: object, tell: object, least: int = 16) -> Counted:
        asked.append(least)
        before = account(least, ended=False, evaluated=1)
        after = account(least, ended=False, evaluated=1 if least == 16 else 0)
        return counted(before, before, after, question.allowed, least)

    def time_them(question: Question, turns: TimedTurns, *_: float) -> StartRule:
        made = filled((0.20, 0.21, 0.19), 1.2, 0.001)
        turns.results, turns.seen, turns.furthest = made.results, made.seen, 30
        return StartRule(interval=gain_interval(turns.results, 0.01))

    monkeypatch.setattr(referee, "_counted", count)
    monkeypatch.setattr(referee, "_timed", time_them)
    question = Question(before=LAUNCH, after=LAUNCH, allowed=("bitwise", "rounding"))
    found = referee.prove(question, FACTORY)
    assert asked == [16, 30]
    assert (found.verdict, [each.code for each in found.refusals]) == (
        "refused",
        [WorkRefusal.LESS_EVALUATION],
    )


@pytest.mark.parametrize(
    ("again_ns", "counted_s", "says", "starts"),
    [(0, 0, 1, 10), (50e6, 0, 1, 5), (1e9, 0, 1, 2), (0, 300, 1, 2), (0, 0, 0, 6)],
)
def test_no_third_start_is_made_where_it_or_the_second_count_would_pass_the_time(
    monkeypatch: pytest.MonkeyPatch, again_ns: float, counted_s: int, says: int, starts: int
) -> None:
    def start(turns: TimedTurns) -> None:
        now_ns[0] += 10 * 10**9
        turns.results += says * [StartResult(gain=(-0.5) ** len(turns.results), luck=0.1)]
        turns.furthest = 1000

    now_ns, turns = [counted_s * 10**9], TimedTurns({})
    monkeypatch.setattr(referee.time, "perf_counter_ns", lambda: now_ns[0])
    monkeypatch.setattr(TimedTurns, "start", start)
    question = Question(before=LAUNCH, after=LAUNCH, budget_ns=100 * 10**9)
    referee._timed(question, turns, 0, again_ns)
    assert now_ns[0] == (counted_s + 10 * starts) * 10**9


def ends_while_timed(patch: pytest.MonkeyPatch, kind: Kind, after_steps: int) -> tuple[Proof, list[int]]:
    """`after` ends after 30 steps, before it could be timed; accounts go as far as they are asked to."""
    asked: list[int] = []

    def count(question: Question, factory: object, tell: object, least: int = 16) -> Counted:
        asked.append(least)
        before = account(least, ended=False)
        after = account(min(least, after_steps), ended=least > after_steps)
        return counted(before, before, after, question.allowed, least)

    def end(question: Question, turns: TimedTurns, *_: float) -> None:
        turns.furthest = 30
        raise Unmeasurable(TrialEnding(kind=kind, why="it ended after 30 steps"), "after")

    patch.setattr(referee, "_counted", count)
    patch.setattr(referee, "_timed", end)
    question = Question(before=LAUNCH, after=LAUNCH, allowed=("bitwise", "rounding"))
    return referee.prove(question, FACTORY), asked


def test_what_ends_early_while_it_is_timed_is_counted_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = ends_while_timed(monkeypatch, "too_short", 30)
    assert asked == [16, 31]
    assert (found.verdict, [each.code for each in found.refusals]) == ("refused", [WorkRefusal.FEWER_STEPS])


def test_what_is_too_short_to_be_timed_is_not_proven_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = ends_while_timed(monkeypatch, "too_short", 1000)
    assert (found.verdict, found.refusals) == ("not_proven", [])
    assert found.reason == "after: it ended after 30 steps; let it train longer"
    assert found.sameness.class_ == "bitwise"


def test_a_side_that_fails_while_it_is_timed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unmeasurable, match="after: "):
        ends_while_timed(monkeypatch, "crash", 1000)
