"""The table of ranks says what was measured of each, and of the late one why it is late."""

from __future__ import annotations

from autobrrr.records import LateRank, RankLine, RankTimes
from autobrrr.report.text.rank_text import ranks_table
from autobrrr_tui.page_rows import page_rows
from autobrrr_tui.panes import diagnosis_pane
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
    head, first, late = page_rows([ranks_table(LINES, LATE)], 120).rows
    assert plain(head).split() == ["rank", "pid", "step", "own", "work", "waits", "longer", "in", "cause"]
    assert plain(first).split() == ["0", "11", "-", "-", "-"]
    assert plain(late).split()[:9] == ["1", "12", "20.0", "ms", "18.0", "ms", "2.00", "ms", "backward"]
    assert plain(late).endswith("its backward takes longer")
    assert "bad" in [tone for _, tone, _ in late]
    assert "takes longer" not in plain(page_rows([ranks_table(LINES)], 120).rows[2])


def test_a_job_of_one_rank_has_no_table() -> None:
    assert "own work" in text(tui.ranks())
    assert "own work" not in text(tui.judged())


def text(view: tui.View) -> str:
    return "\n".join(plain(line) for line in page_rows(diagnosis_pane.parts(view, 60), 100).rows)
