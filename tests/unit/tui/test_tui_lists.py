"""Lists: what a search leaves, in which order they stand, and the details of a line."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autobrrr.records import CpuTaker, Evidence
from autobrrr.report.page_model import Cell, PageTable, figure
from autobrrr.report.page_text import ListChoice, page_rows
from autobrrr_tui.view_state import View, said
from support.screens import tui
from support.screens.tui_screen import Desk, at_desk, text_after

Named = tuple[str, float | None]
LISTS = {"1": "5120", "2": "traced_steps", "3": "optimizer.fused", "4": "aten::addmm"}


def order(items: list[Named], search: str = "", sort: int = 0) -> list[int]:
    """Which items of a list are shown, in the order in which they stand."""
    table = PageTable(
        title="",
        heads=("name", "#figure"),
        rows=[[Cell(text=name), figure("", value)] for name, value in items],
        keys=[str(at) for at in range(len(items))],
    )
    return [int(key) for key in page_rows([table], 60, ListChoice(search=search, sort=sort)).picks.values()]


@given(st.lists(st.tuples(st.text("ab"), st.none() | st.floats(0, 9)), max_size=9), st.integers(0, 3))
def test_a_sort_loses_no_line_and_puts_those_without_a_figure_last(items: list[Named], sort: int) -> None:
    found = order(items, sort=sort)
    assert sorted(found) == list(range(len(items)))
    if sort == 2:
        figures = [items[at][1] for at in found]
        known = [figure for figure in figures if figure is not None]
        assert figures[: len(known)] == sorted(known, reverse=True)


def test_a_search_wants_every_word_in_any_case() -> None:
    items: list[Named] = [("optimizer.Fused", 1.0), ("optimizer.foreach", 2.0), ("gc.freeze", None)]
    assert order(items) == order(items, " ") == [0, 1, 2]
    assert order(items, "OPT fu") == [0]
    assert order(items, "opt", sort=2) == [1, 0]


def test_the_sorts_of_a_list_come_in_turn_and_an_arrow_shows_the_column() -> None:
    heads: list[str] = []

    async def work(desk: Desk) -> None:
        await desk.press("3")
        for _ in range(8):
            heads.append(desk.text)
            await desk.press("s")

    at_desk(tui.trying(), work, size=(60, 16))
    arrows = [[word for word in text.split() if word.endswith(("▼", "▲"))] for text in heads]
    columns = ["remedy▲", "state▲", "achieved▼", "predicted▼", "took▼", "class▲"]
    assert arrows == [[], *([each] for each in columns), []]
    rows = [line for line in heads[3].splitlines() if "optimizer." in line]
    assert "optimizer.fused" in rows[0]


def test_a_search_works_while_it_is_typed_and_escape_shows_all_again() -> None:
    async def work(desk: Desk) -> None:
        await desk.press("3", "slash", *"fus")
        assert "1 of 5 hold 'fus'" in desk.text
        assert "optimizer.foreach" not in desk.text
        await desk.press("enter")
        assert "1 of 5 hold 'fus'" in desk.text
        await desk.press("escape")
        assert "optimizer.foreach" in desk.text
        assert desk.screen.mode == "tuning"
        await desk.press("escape")
        assert desk.screen.mode == "glance"

    at_desk(tui.judged(), work)


def test_enter_opens_the_details_over_the_list() -> None:
    async def work(desk: Desk) -> None:
        for number, name in LISTS.items():
            await desk.press(number, "enter")
            assert name in "".join(desk.text.splitlines()[1:3])
            assert "Esc closes" in desk.text
            await desk.press("escape")

    at_desk(tui.judged(), work)


def test_details_follow_the_cursor_and_the_mouse() -> None:
    async def work(desk: Desk) -> None:
        await desk.press("3", "down")
        assert "┌ optimizer.foreach ─" in desk.text
        await desk.pilot.click("#body", offset=(5, 3))
        await desk.pilot.pause()
        assert "┌ threads.intra_op(threads=2) ─" in desk.text

    at_desk(tui.judged(), work, size=(120, 40))


def silenced(*names: str) -> View:
    """Signals that a busy machine silences, while somebody has the CPUs."""
    evidence = [
        Evidence(signal=name, says=None, value=None, unit="share", note="machine busy while tracing")
        for name in names
    ]
    delay = Evidence(
        signal="busy_machine", says=None, value=0.36, unit="share of wall time", note="machine busy: 36 %"
    )
    found = tui.snapshot(
        regime="unknown",
        limit="unknown",
        reason="verdict withheld: machine busy",
        adds="",
        evidence=[*evidence, delay],
        advice=[],
        contention=[CpuTaker(pid=14868, command="python fit.py", share=0.98)],
        decide_with="autobrrr diagnose 8091 --for 60s",
    )
    return replace(tui.judged(), snapshot=found, judged=None)


def test_a_busy_machine_is_told_once_on_every_screen_with_who_makes_it_busy() -> None:
    async def work(desk: Desk) -> None:
        for mode in ("0", "2", "3", "6"):
            await desk.press(mode)
            text = desk.text
            assert text.count("has no CPU") == 1
            assert text.count("14868") == (2 if mode == "0" else 1), "who it is, and what to do about it"
            assert "python fit.py (pid 14868) has 98 %" in " ".join(text.split())

    at_desk(silenced("traced_steps", "op_cost"), work, size=(60, 16))
    shown = text_after(silenced("traced_steps"), size=(160, 40))
    assert "p measures again after python fit.py (pid 14868)" in shown
    assert "to decide: " not in shown


def chatty(*texts: str) -> View:
    """A session that has said so much."""
    view = replace(tui.kept(), log=())
    for text in texts:
        view = said(view, text)
    return view


def test_the_log_has_a_cursor_that_opens_a_line_whole_and_copies_it() -> None:
    long = " ".join(f"word{number}" for number in range(40))

    async def work(desk: Desk) -> None:
        await desk.press("6")
        assert marked(desk).endswith("the newest")
        await desk.press("up")
        assert "word39" not in desk.text
        await desk.press("y")
        assert desk.pilot.app.clipboard == long
        await desk.press("enter")
        assert "word39" in desk.text

    at_desk(chatty("the oldest", long, "the newest"), work)


def test_the_log_follows_what_is_said_until_the_cursor_leaves_its_end() -> None:
    texts = [f"said {number}" for number in range(60)]

    async def work(desk: Desk) -> None:
        await desk.press("6")
        await desk.show(chatty(*texts, "one more"))
        assert marked(desk).endswith("one more")
        await desk.press("up")
        await desk.show(chatty(*texts, "one more", "another"))
        assert marked(desk).endswith("said 59")
        assert "another" not in desk.text
        await desk.press("down", "down")
        await desk.show(chatty(*texts, "one more", "another", "the last"))
        assert marked(desk).endswith("the last")

    at_desk(chatty(*texts), work)


def marked(desk: Desk) -> str:
    """The line under the cursor."""
    return next(line for line in desk.text.splitlines() if line.startswith(">"))
