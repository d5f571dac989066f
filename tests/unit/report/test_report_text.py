"""Live lines and the verdict read as the golden files say; `REMAKE_GOLDEN=1` makes those anew."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from autobrrr.records import (
    BatchPoint,
    BatchProbe,
    Diagnosis,
    LateRank,
    LedgerRow,
    Phases,
    Shares,
    Trend,
    Where,
)
from autobrrr.report.page_text import section_text
from autobrrr.report.pages.diagnosis_parts import diagnosis_sections, phase_shares
from autobrrr.report.text.verdict_text import MOST_LINES, live_line, verdict_text, verdict_words
from support.judged.verdicts import OVERHEAD, SNAPSHOTS, diagnosis

GUARD = Where(
    file="train.py", line=22, function="guard", share=0.39, error=0.12, phase="other", does="operators"
)
ROWS = [
    LedgerRow(phase=phase, kind=kind, where=where, ns=int(part * 1_420_000), share=part, source="stacks")
    for phase, kind, where, part in (
        ("backward", "operators", "train.py:40 <module>", 0.31),
        ("other", "operators", "train.py:22 guard", 0.3),
        ("forward", "operators", "train.py:9 forward", 0.2),
        ("other", "operators", "train.py:20 guard", 0.09),
        ("optimizer", "operators", "train.py:41 <module>", 0.06),
        ("other", "unseen", None, 0.04),
    )
]
GOLDEN = Path(__file__).resolve().parents[2] / "golden"


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


def test_the_costliest_line_stands_below_the_headline_and_the_ledger_below_the_step() -> None:
    found = msgspec.structs.replace(OVERHEAD, where=[GUARD], ledger=ROWS)
    golden("verdict-lines.txt", verdict_text(found) + "\n")
    assert "many small parts" not in verdict_text(found)
    assert "no waiting" in verdict_text(found, verbose=True)


def test_a_page_and_a_screen_hold_every_line_of_the_ledger_and_all_advice() -> None:
    found = msgspec.structs.replace(OVERHEAD, where=[GUARD], ledger=ROWS)
    shown = "\n".join(section_text(each, None) for each in diagnosis_sections(found))
    for row in ROWS:
        assert (row.where or "unseen").split()[0] in shown
    for advice in found.advice:
        assert advice.remedy in shown
    assert shown.count("train.py:22 guard") == 2  # the costliest line, and its row


def test_a_page_shows_twice_the_batch_also_where_the_fixed_part_is_not_known() -> None:
    points = [BatchPoint(batch=8, step_ns=4_000_000), BatchPoint(batch=16, step_ns=7_000_000)]
    probe = BatchProbe(status="ok", why="two batch sizes can't decide it", points=points, ratio_2x=1.75)
    found = msgspec.structs.replace(OVERHEAD, batch_probe=probe)
    shown = "\n".join(section_text(each, None) for each in diagnosis_sections(found))
    assert "twice the batch takes 1.75 times as long" in shown
    assert "two batch sizes can't decide it" in shown
    assert "a sample" not in shown


def test_a_full_verdict_keeps_its_costliest_lines_and_the_first_advice() -> None:
    grows = Trend(what="step", kind="grows", per_step=1e3, first=1e6, last=2e6)
    late = LateRank(rank=1, pid=7)
    found = msgspec.structs.replace(
        OVERHEAD, where=[GUARD], ledger=ROWS, trends=[grows] * 3, straggler=late, regime="memory", adds="adds"
    )
    names = [line[2:15].strip() for line in verdict_text(found).splitlines()[1:]]
    assert names[:5] == ["your line", "memory", "step", "spent", "where"]
    assert names.index("where") < names.index("over time") < names.index("ranks") < names.index("remedy")
    assert len(names) < MOST_LINES


@pytest.mark.parametrize("snapshot", SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_a_verdict_never_has_more_lines_than_fit_a_screen(snapshot: Diagnosis) -> None:
    assert len(verdict_text(snapshot).splitlines()) <= MOST_LINES


@pytest.mark.parametrize(
    ("state", "limit", "words"),
    [
        ("watching", "unknown", "measuring"),
        ("probing", "unknown", "measuring"),
        ("judged", "unknown", "no verdict"),
        ("ended", "unknown", "no verdict"),
        ("probing", "kernels", "Limited by computation: 76 % matrix products (low confidence)"),
    ],
)
def test_a_job_is_called_measuring_only_while_it_is_measured(state: str, limit: str, words: str) -> None:
    shares = Shares(compute=0.76)
    found = diagnosis(state=state, limit=limit, limit_reason="76 % matrix products", shares=shares)
    assert verdict_words(found) == words


def test_what_is_not_timed_apart_lies_in_other_and_its_name_says_so() -> None:
    compiled = Phases(data_wait=10, backward=30, other=60)
    assert phase_shares(compiled) == [
        ("data wait", 0.1),
        ("backward", 0.3),
        ("other with forward and optimizer", 0.6),
    ]
    whole = Phases(data_wait=1, forward=1, backward=1, optimizer=1, other=1)
    assert [name for name, _ in phase_shares(whole)][-1] == "other"
