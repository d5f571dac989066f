"""Live lines and the verdict read as the golden files say; `REMAKE_GOLDEN=1` makes those anew."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from autobrrr.records import (
    Advice,
    Attach,
    BatchProbe,
    Cost,
    Diagnosis,
    Evidence,
    HostSample,
    JobFacts,
    Phases,
    Shares,
    StepStats,
)
from autobrrr.report.quantities import duration, phase_shares, share
from autobrrr.report.text.live_line import live_line, regime_words
from autobrrr.report.text.verdict_text import MOST_LINES, verdict_text
from support.sidecar import facts

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def diagnosis(**changes: object) -> Diagnosis:
    empty = Diagnosis(
        pid=4242,
        regime="unknown",
        confidence="low",
        reason="nothing has been measured yet",
        shares=Shares(),
        step_ns=StepStats(count=0, mean=None, median=None, p99=None),
        phases_ns=Phases(),
        evidence=[],
        batch_probe=BatchProbe(status="abstained", why="the batch probe has not run"),
        attach=Attach(method="ptrace", latency_ns=3_100_000, pause_ns=430_000),
        cost=Cost(ns_per_step=None, share=None),
        device=None,
        advice=[],
        t_ns=400_000_000,
        steps=0,
        state="watching",
        activity="waiting for the first steps",
    )
    return msgspec.structs.replace(empty, **changes)


OVERHEAD = diagnosis(
    limit="host",
    limit_confidence="high",
    limit_reason="72 % of each 1.45 ms step is the host's: 72 % Python and dispatch; fused pays most",
    regime="overhead",
    confidence="high",
    reason="72 % of the step is spent in Python and the dispatcher; kernels work 0.40 of 1.42 ms",
    shares=Shares(overhead=0.72, compute=0.18, memory=0.08, host=0.0, other=0.02),
    step_ns=StepStats(count=812, mean=1_450_000, median=1_420_000, p99=2_104_000),
    phases_ns=Phases(data_wait=0, forward=440_000, backward=590_000, optimizer=360_000, other=60_000),
    evidence=[
        Evidence(
            signal="loader_wait", says=None, value=0.0, unit="share", note="no waiting", against=["input"]
        ),
        Evidence(
            signal="traced_steps", says="overhead", value=0.72, unit="share", note="kernels leave 72 % idle"
        ),
        Evidence(
            signal="batch_probe",
            says="overhead",
            value=0.9,
            unit="share",
            note="90 % does not grow with the batch",
        ),
        Evidence(signal="op_cost", says="overhead", value=0.6, unit="share", note="400 operators at 2.0 us"),
        Evidence(signal="busy_machine", says=None, value=0.01, unit="share", note="1 % run-queue delay"),
    ],
    advice=[
        Advice(
            remedy="optimizer.fused",
            why="98 tensors in a for-loop",
            expected=1.28,
            reach="live",
            class_="rounding",
        ),
        Advice(remedy="gc.freeze", why="fewer collections", expected=None, reach="live", class_="bitwise"),
        Advice(remedy="compile.default", why="fuses", expected=2.0, reach="relaunch", class_="rounding"),
    ],
    cost=Cost(ns_per_step=980, share=0.00068),
    job=msgspec.convert(facts(4242), JobFacts),
    t_ns=12_300_000_000,
    steps=5120,
    state="judged",
    activity="watching",
)
UNDECIDED = msgspec.structs.replace(
    OVERHEAD,
    limit="mixed",
    limit_confidence="low",
    limit_reason="nobody holds most of each 1.45 ms step by a clear lead: 42 % the host's, 40 % kernels",
    regime="mixed",
    confidence="low",
    reason="overhead takes 42 % and memory 40 %: neither leads",
    advice=[],
    decide_with="autobrrr diagnose 4242 --for 60s",
    cost=Cost(ns_per_step=None, share=None),
    job=None,
)
OUTSIDE = diagnosis(
    attach=Attach(method="outside", latency_ns=None, pause_ns=0),
    reason="nothing was put into the job, so no regime can be named",
    host=HostSample(
        t_ns=1,
        cpu_share=1.98,
        rss_bytes=1 << 30,
        threads=9,
        run_delay_share=0.02,
        steal_share=0.0,
        children_cpu_share=0.0,
    ),
    state="judged",
    activity="watching from outside",
    steps=None,
)
TUNED = msgspec.structs.replace(
    OVERHEAD, levers=["optimizer.fused", "gc.freeze"], state="tuning", activity="closing run"
)

SNAPSHOTS = {
    "first": diagnosis(),
    "overhead": OVERHEAD,
    "mixed": UNDECIDED,
    "outside": OUTSIDE,
    "tuned": TUNED,
    "ended": msgspec.structs.replace(OVERHEAD, state="ended", activity="job ended", final=True),
}


def golden(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("REMAKE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_live_lines_read_as_they_should() -> None:
    golden("live.txt", "".join(f"{live_line(snapshot)}\n" for snapshot in SNAPSHOTS.values()))


@pytest.mark.parametrize("name", ["overhead", "mixed", "outside"])
def test_the_verdict_reads_as_it_should(name: str) -> None:
    golden(f"verdict-{name}.txt", verdict_text(SNAPSHOTS[name]) + "\n")


@pytest.mark.parametrize("snapshot", SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_a_verdict_never_has_more_than_ten_lines(snapshot: Diagnosis) -> None:
    assert len(verdict_text(snapshot).splitlines()) <= MOST_LINES


def test_a_verdict_shows_the_evidence_that_carries_it_first() -> None:
    lines = verdict_text(OVERHEAD).splitlines()
    assert [line for line in lines if "traced steps" in line]
    assert not [line for line in lines if "run-queue" in line]
    assert [line for line in verdict_text(UNDECIDED).splitlines() if "to decide" in line]


@pytest.mark.parametrize(
    ("state", "regime", "words"),
    [
        ("watching", "unknown", "regime: measuring"),
        ("probing", "unknown", "regime: measuring"),
        ("judged", "unknown", "regime: unknown"),
        ("ended", "unknown", "regime: unknown"),
        ("probing", "memory", "regime: memory (low)"),
        ("judged", "mixed", "regime: mixed (low)"),
    ],
)
def test_an_unknown_regime_is_called_measuring_only_while_it_is_measured(
    state: str, regime: str, words: str
) -> None:
    assert regime_words(diagnosis(state=state, regime=regime)) == words


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.50 us"),
        (12_340_000, "12.3 ms"),
        (61e9, "61.0 s"),
    ],
)
def test_durations_have_three_digits_and_a_unit(ns: float | None, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [(None, "-"), (0.0, "0 %"), (0.00001, "<0.01 %"), (0.0042, "0.42 %"), (0.314, "31 %"), (1.0, "100 %")],
)
def test_small_shares_keep_the_digits_that_tell_them_from_nothing(part: float | None, text: str) -> None:
    assert share(part) == text


def test_what_is_not_timed_apart_lies_in_other_and_its_name_says_so() -> None:
    compiled = Phases(data_wait=10, backward=30, other=60)
    assert phase_shares(compiled) == [
        ("data wait", 0.1),
        ("backward", 0.3),
        ("other with forward and optimizer", 0.6),
    ]
    whole = Phases(data_wait=1, forward=1, backward=1, optimizer=1, other=1)
    assert [name for name, _ in phase_shares(whole)][-1] == "other"


def test_an_edit_stands_beside_the_best_cure_and_names_the_others() -> None:
    def one(name: str, reach: str) -> Advice:
        return msgspec.convert(
            {"remedy": name, "why": f"{name} why", "expected": None, "reach": reach, "class": "rounding"},
            Advice,
        )

    found = diagnosis(
        advice=[
            one("optimizer.fused", "live"),
            one("gc.freeze", "live"),
            one("edit.padding", "edit"),
            one("edit.no_sync", "edit"),
        ]
    )
    lines = verdict_text(found).splitlines()
    assert [line.split()[0] for line in lines if "why" in line] == ["cure", "edit"]
    assert "edit          edit.padding why (rounding); also edit.no_sync" in verdict_text(found)
