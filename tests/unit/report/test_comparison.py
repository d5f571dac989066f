"""Two sessions and two traces side by side: figures of both, what differs, and no speed-up claimed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from autobrrr.cli import main
from autobrrr.records import Diagnosis, StepStats, Tuning
from autobrrr.report.page_text import page_text
from autobrrr.report.pages.side_by_side import (
    ComparedFigure,
    ComparedSessions,
    compare_sessions,
    comparison_page,
)
from autobrrr.report.past_session import SessionData, SessionTimeline
from support.pages import read_page
from support.screens import tui
from support.trace import Scene

MS = 1_000_000


def session(name: str, snapshot: Diagnosis, tuned: Tuning | None = None) -> SessionData:
    return SessionData(
        session=name,
        ended="detached",
        unread=None,
        snapshot=snapshot,
        tuned=tuned,
        trials=[],
        timeline=SessionTimeline(),
    )


def steps(median_ms: float) -> StepStats:
    median = int(median_ms * MS)
    return StepStats(count=100, mean=median, median=median, p99=2 * median)


def compared(**job: object) -> ComparedSessions:
    return compare_sessions(
        session("one", tui.snapshot(step_ns=steps(8))),
        session("two", tui.snapshot(step_ns=steps(4), job=tui.job(**job)), tui.tuned()),
    )


def test_the_step_of_both_stands_beside_its_change() -> None:
    found = compared().comparison
    (median,) = [each for each in found.figures if each.name == "median"]
    assert (median.before, median.after, median.side) == (8 * MS, 4 * MS, "better")
    assert median.change == "0.50x"
    text = page_text(comparison_page(compared()))
    assert "median" in text
    assert re.search(r"median +8\.00 ms +█+ +4\.00 ms +█+ +0\.50x", text)
    assert "not tuned" in text
    assert "not an A/B test" in text


def figure(
    unit: Literal["ns", "share", "count"], before: float | None, after: float | None
) -> ComparedFigure:
    less_is_better = None if unit == "count" else True
    return ComparedFigure(
        group="g", name="n", unit=unit, before=before, after=after, less_is_better=less_is_better
    )


@pytest.mark.parametrize(
    ("compared", "said", "side"),
    [
        (figure("ns", 10.0, 10.1), "same", ""),
        (figure("ns", 10.0, 12.0), "1.20x", "worse"),
        (figure("ns", 10.0, 8.0), "0.80x", "better"),
        (figure("count", 10.0, 8.0), "0.80x", ""),
        (figure("share", 0.2, 0.5), "+30 points", "worse"),
        (figure("share", 0.5, 0.502), "same", ""),
        (figure("ns", None, 3.0), "", ""),
        (figure("ns", 0.0, 3.0), "new", "worse"),
        (figure("ns", 0.0, 0.0), "same", ""),
    ],
)
def test_a_change_is_said_as_people_would(compared: ComparedFigure, said: str, side: str) -> None:
    assert compared.change == said
    assert compared.side == side


def logs(folder: Path) -> list[str]:
    found = []
    for name, median_ms in (("a", 8), ("b", 4)):
        file = folder / f"{name}.jsonl"
        snapshot = tui.snapshot(step_ns=steps(median_ms))
        file.write_bytes(msgspec.json.encode({"at": 1.0, "kind": "snapshot", "body": snapshot}) + b"\n")
        found.append(str(file))
    return found


def test_two_sessions_are_compared_by_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "diff.html"
    assert main(["report", "--diff", *logs(tmp_path), "--json", "--html", str(page)]) == 0
    told = msgspec.json.decode(capsys.readouterr().out, type=ComparedSessions)
    assert [each.session for each in told.sessions] == ["a", "b"]
    assert "8.00 ms → 4.00 ms" in read_page(page.read_text()).text
    assert main(["report", "--diff", *logs(tmp_path)]) == 0
    assert "before  a" in capsys.readouterr().out
    assert main(["report", "last", "--diff", *logs(tmp_path)]) == 2


def trace(folder: Path, name: str, gap_us: int) -> str:
    scene = Scene()
    for i in range(20):
        scene.kernel((100 + gap_us) * i, 100, "k", launch=((100 + gap_us) * i - 5, 2))
    return str(scene.write(folder, name))


def test_two_traces_are_compared_by_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = trace(tmp_path, "before.json", 100), trace(tmp_path, "after.json", 25)
    page = tmp_path / "diff.html"
    assert main(["analyze", before, "--diff", after, "--json", "--html", str(page)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["file"] for each in told["traces"]] == [before, after]
    figures = {(each["group"], each["name"]): each for each in told["comparison"]["figures"]}
    idle = figures["device, share of its time", "idle"]
    assert idle["before"] == pytest.approx(0.5, abs=0.03)
    assert idle["after"] == pytest.approx(0.2, abs=0.03)
    assert figures["one kernel, median", "k"]["before"] == 100
    assert "Before and after" in read_page(page.read_text()).text
