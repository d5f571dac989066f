"""Curves, intervals and boxes: what is drawn where, and that it fits."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.records import NoClaim, StepStats
from autobrrr.report import text_bars
from autobrrr.report.page_model import LogScale
from autobrrr.report.text_rows import Row, plain
from autobrrr_tui.panes import glance_pane
from autobrrr_tui.panes.job_header import activity
from autobrrr_tui.view_state import Mark, ScreenStanding, View, left_on, take
from support.screens import tui

S = 1_000_000_000


def text_of(rows: list[Row]) -> str:
    return "\n".join(plain(line) for line in rows)


@given(st.lists(st.none() | st.floats(0, 1e12), max_size=50), st.integers(1, 20), st.integers(1, 6))
def test_a_curve_has_the_size_that_is_asked_for(values: list[float | None], cells: int, height: int) -> None:
    lines = text_bars.curve(values, cells, height, 1e9)
    assert [len(line) for line in lines] == [cells] * height


def test_an_interval_stands_beside_or_across_the_line_of_no_change() -> None:
    ends = LogScale(low=0.5, high=2.0)
    better = text_bars.whisker(1.5, [1.3, 1.8], ends, 41)
    assert better.index("│") == 20 < better.index("├") < better.index("●") < better.index("┤")
    none = text_bars.whisker(1.02, [0.9, 1.1], ends, 41)
    assert "│" not in none or none.index("├") < none.index("│") < none.index("┤")
    assert none.index("├") < 20 < none.index("┤")


def test_what_was_named_stays_with_its_age_while_it_is_measured_anew() -> None:
    anew = tui.snapshot(regime="unknown", limit="unknown", reason="measuring", state="tracing", t_ns=82 * S)
    view = take(tui.judged(), anew)
    shown = text_of(glance_pane.verdict(view, 100))
    assert "Limited by host" in shown
    assert "0:40 ago" in shown
    assert "measuring again" in shown
    assert "ago" not in text_of(glance_pane.verdict(tui.judged(), 100))
    none = StepStats(count=0, mean=None, median=None, p99=None)
    untimed = take(take(View(), tui.snapshot()), tui.snapshot(step_ns=none))
    (figures, tone, _), *_ = glance_pane.step_figures(untimed, 100)
    assert ("4.20 ms median" in figures, tone) == (True, "muted")


def test_what_is_done_to_the_job_is_marked_where_it_was_done() -> None:
    view = View(standing=ScreenStanding.LIVE)
    for t_s, state, active in (
        (1, "watching", []), (2, "tracing", []), (3, "tracing", []), (4, "judged", []),
        (9, "tuning", []), (10, "tuning", ["optimizer.fused"]), (20, "judged", ["optimizer.fused"]),
        (30, "judged", []),
    ):  # fmt: skip
        view = take(view, tui.snapshot(t_ns=t_s * S, state=state, active=active))
    assert view.marks == (
        Mark(t_ns=2 * S, text="trace"),
        Mark(t_ns=9 * S, text="tuning"),
        Mark(t_ns=30 * S, text="-fused"),
    )


def advised(remedy: str, reach: str, class_: str = "bitwise") -> View:
    """A job with one piece of advice."""
    first = msgspec.structs.replace(tui.snapshot().advice[0], remedy=remedy, reach=reach, class_=class_)
    return tui.judged(snapshot=tui.snapshot(advice=[first]))


def test_what_fits_only_a_new_start_is_not_answered_with_a_tuning_of_the_running_job() -> None:
    assert glance_pane.next_step(advised("optimizer.fused", "live"))[0].startswith("t tries")
    view = advised("loader.workers", "next_epoch")
    assert glance_pane.next_step(view)[0].startswith("autobrrr tune --param loader.workers -- python ")
    assert "next epoch" in text_of(glance_pane.gain(view, 60).rows)
    view = advised("edit.no_sync", "edit")
    said = glance_pane.next_step(view)[0]
    assert said.startswith("edit the script, 1.67x predicted (autobrrr explain edit.no_sync)")
    kept = tui.judged(snapshot=tui.snapshot(active=["gc.freeze"], advice=view.snapshot.advice))
    assert glance_pane.next_step(kept)[0].startswith("e saves what is on as a recipe, then edit the script, ")


def test_a_tuner_that_rests_says_who_made_it_and_how_it_goes_on() -> None:
    joined = replace(tui.trying(), details=tui.details(paused=True), progress=None)
    said = activity(joined)
    assert said.startswith("paused: someone pressed space on a screen; press it again to continue; trying")
    assert "press it again" not in activity(replace(joined, readonly=True))


def test_what_was_kept_counts_as_on_while_it_is_compared_with_all_off_once_more() -> None:
    view = take(take(tui.trying(), tui.tuned()), tui.snapshot(state="tuning", active=[]))
    shown = text_of(glance_pane.gain(view, 60).rows)
    assert "on: optimizer.fused" in shown
    assert "nothing is on now" not in shown


def test_nothing_is_called_on_once_the_session_is_over() -> None:
    kept = tui.kept()
    assert "on: optimizer.fused" in text_of(glance_pane.gain(kept, 60).rows)
    crowded = msgspec.structs.replace(tui.tuned(), interval=None, no_claim=NoClaim.CROWDED)
    for view, said in ((kept, "proven: "), (replace(kept, tuned=crowded), "nothing is claimed")):
        shown = text_of(glance_pane.gain(left_on(view), 60).rows)
        assert "nothing is on now" in shown
        assert said in shown
        assert "on: " not in shown
