"""The table of ranks says what was measured of each, and of the late one why it is late."""

from __future__ import annotations

from autobrrr.records import LateRank, RankLine, RankTimes
from autobrrr_tui.panes import diagnosis_pane, rank_table
from autobrrr_tui.text_rows import plain
from support.screens import tui

LATE = LateRank(rank=1, pid=12, cause="backward", phase="backward", costs_ns=5_000_000, step_ns=20_000_000)
LINES = [
    RankLine(rank=0, pid=11),
    RankLine(
        rank=1,
        pid=12,
        step_ns=20_000_000,
        phase="backward",
        collectives=RankTimes(
            steps=64, step_ns=20_000_000, own_ns=18_000_000, waits_ns=2_000_000, error_ns=0
        ),
    ),
]


def test_the_late_rank_has_its_phase_and_its_cause_and_what_was_not_measured_is_no_zero() -> None:
    head, first, late = rank_table.table(LINES, LATE, 100)
    assert plain(head).split() == ["rank", "step", "own", "work", "waits", "longer", "in", "cause"]
    assert plain(first).split() == ["0", "-", "-", "-"]
    assert plain(late).split()[:8] == ["1", "20.0", "ms", "18.0", "ms", "2.00", "ms", "backward"]
    assert plain(late).endswith("its backward takes longer")
    assert [each[0][1] for each in (first, late)] == ["plain", "bad"]
    assert all(len(plain(line)) <= 40 for line in rank_table.table(LINES, LATE, 40))


def test_ranks_that_were_not_compared_have_no_cause() -> None:
    assert rank_table.said(None, 80) == []
    assert "takes longer" not in plain(rank_table.table(LINES, None, 100)[2])
    nobody = LateRank(rank=None, pid=None, why="alike")
    (line,) = rank_table.said(nobody, 120)
    assert plain(line) == "none is slower than the others: their own work takes equally long"
    assert line[0][1] == "plain"


def test_a_job_of_one_rank_has_no_table() -> None:
    assert "own work" in text(tui.ranks())
    assert "own work" not in text(tui.judged())


def text(view: tui.View) -> str:
    return "\n".join(plain(line) for line in diagnosis_pane.page(view, 100, 60).rows)
