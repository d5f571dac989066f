"""Scores, the matrix, and rows that survive a broken-off run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from benchmarks.planted import results
from benchmarks.planted.load import LoadMeter
from benchmarks.planted.matrix import Score, counted, score, score_limit


def row(truth: str, verdict: str | None, **more: Any) -> dict[str, Any]:
    told = {} if verdict is None else {"verdict": verdict, "confidence": "high", "reason": "figures"}
    load = {"foreign_cores": 0.1, "stolen_cores": 0.0, "average_1m": 1.0}
    return {"case": f"{truth}-{verdict}", "truth": truth, "load": load, **told, **more}


@pytest.mark.parametrize(
    ("truth", "verdict", "expected"),
    [
        ("overhead", "overhead", "right"),
        ("overhead", "unknown", "abstained"),
        ("overhead", "mixed", "abstained"),
        ("overhead", "memory", "wrong"),
        ("mixed", "mixed", "right"),
        ("mixed", "unknown", "right"),
        ("mixed", "input", "wrong"),
        ("unknown", "unknown", "right"),
        ("unknown", "overhead", "wrong"),
        ("overhead", None, "failed"),
    ],
)
def test_only_another_named_regime_is_wrong(truth: str, verdict: str | None, expected: Score) -> None:
    assert score(row(truth, verdict)) == expected


def test_a_verdict_whose_job_did_not_live_on_is_a_failure() -> None:
    assert score(row("input", "input", failed="the job did not live on")) == "failed"


@pytest.mark.parametrize(
    ("limit", "shares", "expected"),
    [
        ("host", {"overhead": 0.5, "host": 0.3}, "right"),
        ("kernels", {"memory": 0.4, "compute": 0.4, "overhead": 0.2}, "right"),
        ("kernels", {"overhead": 0.8}, "wrong"),
        ("input", {"input": 0.45, "overhead": 0.4}, "wrong"),
        ("unknown", {"input": 0.45, "overhead": 0.4}, "right"),
        ("mixed", {"input": 0.9}, "abstained"),
        ("host", {}, None),
    ],
)
def test_a_limit_is_held_against_the_measured_shares(
    limit: str, shares: dict[str, float], expected: Score | None
) -> None:
    assert score_limit(row("mixed", "mixed", limit=limit), {"shares": shares}) == expected


def test_a_mixture_counts_only_while_its_step_is_the_one_that_was_measured() -> None:
    proof = {"case": "mixed-host", "truth": "mixed", "holds": True, "full": {"median_step_ns": 20_000_000}}
    as_measured, slower = (row("mixed", "host", step_ns={"median": ns}) for ns in (21_000_000, 26_000_000))
    assert counted([as_measured, slower], [proof]) == [as_measured]
    other = row("host", "host", step_ns={"median": 26_000_000})
    assert counted([other], [{**proof, "case": "host-host", "truth": "host"}]) == [other]
    assert counted([as_measured], [{**proof, "holds": False}]) == []


def test_rows_are_kept_by_case_and_repeat_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "out" / "rows.jsonl"
    for number, revision in enumerate(("old", "new", "new")):
        results.append(path, {"case": "x", "revision": revision, "number": number})
    results.append(path, {"case": "x", "repeat": 1, "revision": "new", "number": 3})
    with path.open("a", encoding="utf-8") as file:
        file.write('{"case": "y", "rev')
    rows = results.read(path)
    assert [one["number"] for one in results.latest(rows, "new")] == [2, 3]
    assert results.latest(rows, "other") == []


def test_foreign_load_is_what_the_machine_did_and_we_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    times = SimpleNamespace(user=1.0, nice=0.0, system=1.0, irq=0.0, softirq=0.0, steal=0.0, idle=9.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda: times)
    meter = LoadMeter()
    assert meter.read().foreign_cores == 0
    times.user, times.steal = 9000.0, 0.07
    load = meter.read()
    assert load.foreign_cores > 1
    assert load.stolen_cores > 0
