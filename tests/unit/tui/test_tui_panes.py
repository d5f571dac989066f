"""Panes are pure: whatever a session says, the rows fit and the sums are right."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from autobrrr import quantities
from autobrrr.records import RankLine, Reverted, Tuning
from autobrrr.records.wire_answers import ActiveRemedy
from autobrrr.report import text_bars
from autobrrr.report.page_text import ListChoice, page_rows
from autobrrr.report.text_rows import Row, clipped, padded, plain, wrapped
from autobrrr_tui.panes import glance_pane, job_header, tuning_pane
from autobrrr_tui.panes.mode_panes import PANES
from autobrrr_tui.view_state import ScreenStanding, View, take
from support.screens import tui

VIEWS = {
    "cpu": tui.judged(),
    "measuring": tui.measuring(),
    "tuning": tui.trying(),
    "kept": tui.kept(),
    "gpu": tui.gpu(),
    "ranks": tui.ranks(),
    "nothing": View(),
    "ended": tui.judged(standing=ScreenStanding.ENDED, why="process 8091 ended"),
}


def width_of(line: Row) -> int:
    """Cells, not characters: a wide character takes two."""
    return sum(cell_len(text) for text, _, _ in line)


@given(st.lists(st.floats(0, 1e9), max_size=9), st.integers(0, 200))
def test_the_parts_of_a_bar_sum_to_its_width(shares: list[float], cells: int) -> None:
    found = text_bars.cells_of(shares, cells)
    assert sum(found) == (cells if sum(shares) > 0 else 0)
    assert all(each >= 0 for each in found)


@given(st.text(max_size=60), st.integers(1, 40))
def test_text_is_cut_and_filled_in_cells_not_characters(text: str, cells: int) -> None:
    assert cell_len(clipped(text, cells)) <= cells
    assert cell_len(padded(text, cells)) == cells


@given(st.text(alphabet="ab 字", max_size=80), st.integers(2, 30), st.integers(1, 4))
def test_wrapped_lines_fit_and_lose_nothing_silently(text: str, cells: int, most: int) -> None:
    lines = wrapped(text, cells, most)
    assert len(lines) <= most
    assert all(cell_len(line) <= cells for line in lines)
    if len(wrapped(text, cells)) > most:
        assert lines[-1].endswith("…")


@pytest.mark.parametrize("name", VIEWS)
def test_the_glance_fits_without_scrolling(name: str) -> None:
    for width, height in ((60, 16), (80, 24), (100, 33), (120, 40), (200, 60)):
        body = height - 3 - len(job_header.banner(VIEWS[name], width)) - 1
        rows = glance_pane.glance_rows(VIEWS[name], body, width)
        assert len(rows) <= body
        assert all(width_of(line) <= width for line in rows), [plain(line) for line in rows]


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("width", [60, 80, 109])
def test_every_mode_fits_in_its_width(name: str, width: int) -> None:
    for pane in PANES.values():
        for line in page_rows(pane.parts(VIEWS[name], 20), width).rows:
            assert width_of(line) <= width, plain(line)


def test_a_share_that_was_not_measured_is_no_zero() -> None:
    assert quantities.share(None) == quantities.duration(None) == quantities.size(None) == "-"
    assert (quantities.clock(3_723e9), quantities.size(61 << 30)) == ("1:02:03", "61.0 GB")


def test_the_slowest_rank_is_named_and_one_without_a_figure_is_not_counted() -> None:
    ranks = [
        RankLine(rank=0, pid=1, step_ns=5, regime=None),
        RankLine(rank=1, pid=2, step_ns=9, regime=None, slowest=True),
        RankLine(rank=2, pid=3, step_ns=None, regime=None),
    ]
    said, columns = glance_pane.strip(ranks, 70)
    assert plain(said) == "3 ranks  [1 9 ns slowest]  median 7 ns"
    assert [tone for _, tone, _ in columns] == ["better", "worse", "better"]
    assert plain(columns)[2:] == ""


@pytest.mark.parametrize("count", [200, 3_000])
def test_of_very_many_ranks_each_has_a_column_and_the_slowest_a_name(count: int) -> None:
    many = [RankLine(rank=rank, pid=rank, step_ns=20_000_000, regime=None) for rank in range(count - 1)]
    late = RankLine(rank=count - 1, pid=count, step_ns=31_000_000, regime=None, slowest=True)
    said, columns = map(plain, glance_pane.strip([*many, late], 67))
    assert said == f"{count} ranks  [{count - 1} 31.0 ms slowest]  median 20.0 ms"
    assert columns.endswith("█")
    assert len(columns) == -(-count // -(-count // 67)) <= 67


def test_a_figure_and_its_unit_stay_on_one_line() -> None:
    assert wrapped("the median is 5.89 ms)", 17) == ["the median is", "5.89 ms)"]
    assert wrapped("it takes 12 steps more", 11) == ["it takes 12", "steps more"]
    assert wrapped("it waits 71 % of it", 11) == ["it waits", "71 % of it"]
    assert wrapped("it waits (71 %) of it", 12) == ["it waits", "(71 %) of it"]
    assert wrapped("AGE\u00a01m, RSS\u00a01024\u00a0MiB", 15) == ["AGE 1m,", "RSS 1024 MiB"]


def test_a_job_that_stands_still_is_said_to() -> None:
    assert "no step has ended for 31 s" in job_header.activity(tui.judged(silent_s=31.0))
    assert "no step" not in job_header.activity(tui.judged(silent_s=1.0))


def test_remedies_show_what_became_of_them() -> None:
    states = {line.key: line.state for line in tuning_pane.lines(tui.trying())}
    assert states == {
        "optimizer.foreach": "reverted",
        "optimizer.fused": "trying",
        "threads.intra_op(threads=2)": "queued",
        "precision.autocast_bf16": "restart",
        "batch.larger": "next epoch",
    }
    view = tui.judged(details=tui.details(remedies=[], manual=tui.details().remedies[:1], later=[]))
    assert [line.state for line in tuning_pane.lines(view)] == ["manual"]
    on = ActiveRemedy(token=1, remedy="precision.tf32", reach="live", class_="changes-training")
    row = tuning_pane.lines(tui.judged(details=tui.details(active=[on])))[3]
    assert (row.key, row.state, row.class_tone) == ("precision.tf32", "on", "warn")
    now = next(line for line in tuning_pane.lines(tui.trying()) if line.state == "trying")
    assert (now.achieved, now.interval, now.remedy.expected) == (1.31, [1.27, 1.35], 1.67)
    assert [line.state for line in tuning_pane.lines(tui.kept())][:2] == ["kept", "reverted"]


def test_a_remedy_that_gained_and_was_reverted_says_why_on_the_first_screen() -> None:
    why = "long steps come more often with it: 0.97x over all"
    gained = msgspec.structs.replace(tui.trial("optimizer.foreach", "undone", 1.25), why=why)
    rows = [plain(line) for line in glance_pane.glance_rows(take(tui.judged(), gained), 38, 120)]
    at = next(at for at, line in enumerate(rows) if "optimizer.foreach" in line and "1.25x" in line)
    assert f"optimizer.foreach: {why}" in rows[at + 1]
    both = take(take(tui.judged(), gained), msgspec.structs.replace(gained, remedy="optimizer.fused"))
    assert any("3 more: 3 lists them" in plain(line) for line in glance_pane.glance_rows(both, 27, 120))


@pytest.mark.parametrize("width", [60, 72, 80, 120])
def test_the_list_of_remedies_says_in_whole_words_what_changes_training(width: int) -> None:
    for sorted_by in range(7):
        rows = page_rows(tuning_pane.parts(tui.kept(), 20), width, ListChoice(sort=sorted_by)).rows
        line = next(plain(each) for each in rows if "batch.larger" in plain(each))
        assert line.endswith(" changes-training")
        assert max(width_of(each) for each in rows) <= width


def test_what_was_applied_after_a_tuning_is_not_called_proven() -> None:
    tuned: Tuning = tui.tuned()
    view = take(take(View(standing=ScreenStanding.LIVE), tui.snapshot(active=tuned.kept)), tuned)
    assert "proven" in plain(glance_pane.gain(view, 90).rows[0])
    other = take(view, tui.snapshot(active=["gc.threshold"]))
    assert not any("proven" in plain(line) for line in glance_pane.gain(other, 90).rows)
    assert not glance_pane.gain(other, 90).note
    both = take(view, tui.snapshot(active=[*tuned.kept, "gc.threshold"]))
    assert plain(glance_pane.gain(both, 90).rows[0]).endswith(f"proven with {', '.join(tuned.kept)}")


def test_what_the_guard_has_reverted_since_is_not_called_proven() -> None:
    tuned = tui.tuned()
    undone = tuned.without(Reverted(remedy=tuned.kept[0], why="the gain has gone"))
    view = take(take(View(standing=ScreenStanding.LIVE), tui.snapshot(active=tuned.kept)), tuned)
    view = take(take(view, tui.snapshot(active=[])), tui.details(tuned=undone))
    assert not any("proven:" in plain(line) for line in glance_pane.gain(view, 90).rows)
    assert view.trials[0].outcome == "undone"
