"""Each key does what its word says, or says why it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autobrrr.records import from_registry
from autobrrr.records.session_requests import (
    ApplyRemedies,
    EndSession,
    Measure,
    Request,
    SteerTuning,
    TuneRequest,
    UndoRemedy,
)
from autobrrr.report.page_text import ScreenPart
from autobrrr_tui.panes.mode_panes import PANES
from autobrrr_tui.screens.list_screen import MODES
from autobrrr_tui.view_state import ScreenStanding, View
from support.screens import tui
from support.screens.tui_screen import Desk, at_desk, text_after

TOUCHING = ("t", "a", "u", "w", "p", "space", "d")
DARING = msgspec.structs.replace(
    tui.details().remedies[0], remedy="precision.tf32", class_="changes-training"
)


def applied(remedy: str) -> ApplyRemedies:
    return ApplyRemedies([from_registry(remedy)])


def after(view: View, *keys: str, **options: Any) -> tui.FakeSource:
    async def work(desk: Desk) -> None:
        await desk.press(*keys)

    return at_desk(view, work, **options)


def test_a_key_requests_one_thing() -> None:
    cases: list[tuple[View, tuple[str, ...], Request[Any]]] = [
        (tui.judged(), ("t",), TuneRequest(stays=True)),
        (tui.judged(), ("p",), Measure("all", "on")),
        (tui.judged(), ("w",), Measure("window")),
        (tui.judged(), ("3", "a"), applied("optimizer.fused")),
        (tui.kept(), ("u",), UndoRemedy(1)),
        (tui.trying(), ("space",), SteerTuning("pause")),
        (replace(tui.trying(), details=tui.details(paused=True)), ("space",), SteerTuning("resume")),
        (tui.judged(), ("d",), EndSession()),
    ]

    async def work(desk: Desk) -> None:
        for view, keys, asked in cases:
            await desk.show(view)
            await desk.press("0", *keys)
            assert desk.source.requests == [asked], keys
            desk.source.requests.clear()

    at_desk(tui.judged(), work)


@pytest.mark.parametrize(
    ("view", "keys", "asked"),
    [
        (tui.judged(details=tui.details(remedies=[DARING])), ("3", "a"), applied("precision.tf32")),
        (tui.kept(), ("d",), EndSession()),
        (tui.trying(), ("t",), SteerTuning("cancel")),
        (tui.trying(), ("d",), EndSession()),
    ],
    ids=["class changes-training", "detach undoes", "stop tuning", "detach while tuning"],
)
def test_what_can_surprise_is_asked_first(view: View, keys: tuple[str, ...], asked: Request[Any]) -> None:
    async def work(desk: Desk) -> None:
        await desk.press(*keys)
        for answer in ("n", "escape", "enter"):
            assert desk.source.requests == []
            await desk.press(answer)
            assert desk.source.requests == []
            await desk.press(keys[-1])
        await desk.press("y")

    assert at_desk(view, work).requests == [asked]


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (replace(tui.trying(), readonly=True), "read-only"),
        (replace(tui.trying(), standing=ScreenStanding.ENDED, why="process 8091 ended"), "8091 ended"),
        (replace(tui.trying(), standing=ScreenStanding.LOST, why="the sidecar is gone"), "is gone"),
        (replace(tui.trying(), standing=ScreenStanding.RECORDED, why="a.jsonl"), "recorded"),
        (View(pid=1), "not attached yet"),
    ],
    ids=["readonly", "ended", "lost", "recorded", "opening"],
)
def test_no_key_touches_a_job_that_must_or_can_not_be_touched(view: View, why: str) -> None:
    async def work(desk: Desk) -> None:
        for key in TOUCHING:
            await desk.press(key)
            assert why in desk.text, key
            await desk.press("y")

    assert at_desk(view, work).requests == []


def test_the_answer_to_a_request_is_shown_for_a_while() -> None:
    now_s = [0.0]

    async def work(desk: Desk) -> None:
        await desk.press("3", "a")
        assert "optimizer.fused will be applied at the next step boundary" in desk.text
        await desk.told("optimizer.fused is not on: it does not fit")
        assert "it does not fit" in desk.text
        now_s[0] = 60.0
        await desk.show(tui.judged())
        assert "it does not fit" not in desk.text

    at_desk(tui.judged(), work, clock_s=lambda: now_s[0])


def test_export_writes_what_is_on_and_never_over_a_file(tmp_path: Path) -> None:
    after(tui.kept(), "e", "e", export_to=tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["autobrrr-8091-2.toml", "autobrrr-8091.toml"]
    assert '"optimizer.fused" = true' in (tmp_path / "autobrrr-8091.toml").read_text()


def test_export_says_where_there_is_nothing_to_write_or_no_place(tmp_path: Path) -> None:
    assert "no recipe to write" in text_after(tui.judged(), "e")
    assert "not written (No such file" in text_after(tui.kept(), "e", export_to=tmp_path / "gone")


def test_applying_what_can_not_be_applied_says_what_to_do() -> None:
    async def work(desk: Desk) -> None:
        for view, keys, said in (
            (tui.kept(), ("3", "a"), "is already on"),
            (tui.judged(), ("3", *["down"] * 4, "a"), "autobrrr run --recipe"),
            (tui.judged(), ("0", "a"), "choose a remedy"),
            (tui.judged(), ("u",), "no remedy is on"),
            (tui.judged(), ("space",), "nothing is being tuned"),
        ):
            await desk.show(view)
            await desk.press(*keys)
            assert said in desk.text

    at_desk(tui.judged(), work)


def test_a_click_on_a_key_or_a_mode_is_that_key() -> None:
    async def work(desk: Desk) -> None:
        await desk.pilot.click("#modes", offset=(24, 0))
        await desk.pilot.pause()
        assert desk.screen.mode == "steps"
        await desk.pilot.click("#keys", offset=(4, 0))
        await desk.pilot.pause()

    assert at_desk(tui.judged(), work).requests == [TuneRequest(stays=True)]


def test_the_palette_knows_everything_that_has_a_key() -> None:
    async def work(desk: Desk) -> None:
        names = {command.title for command in desk.pilot.app.get_system_commands(desk.screen)}
        assert {"Tune", "Undo", "Export", "Detach", "Mode: gaps", "Theme: light"} <= names
        await desk.press("ctrl+p")
        await desk.press(*"undo", "enter")

    assert at_desk(tui.kept(), work).requests == [UndoRemedy(1)]


@pytest.mark.parametrize("size", [(40, 10), (20, 5)])
def test_a_tiny_terminal_shows_something_and_nothing_breaks(size: tuple[int, int]) -> None:
    async def work(desk: Desk) -> None:
        for number in range(len(MODES)):
            await desk.press(str(number))
            lines = desk.text.split("\n")  # the last may be empty until a footer is painted
            assert all(len(line) <= size[0] for line in lines)
            assert len(lines) == size[1]
            assert any(lines)

    at_desk(tui.ranks(), work, size=size)


def test_no_colour_leaves_no_colour_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def work(desk: Desk) -> None:
        filters = desk.pilot.app._filters
        for strip in desk.pilot.app.screen._compositor.render_strips():
            for each in filters:
                if each.enabled:
                    strip = strip.apply_filter(each, desk.pilot.app.background_colors[1])  # noqa: PLW2901
            for segment in strip:
                assert segment.style is None or segment.style.color is None or segment.style.color.is_default

    at_desk(tui.judged(), work)


def test_figures_that_no_pane_can_draw_are_said_and_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(view: View, height: int) -> list[ScreenPart]:
        raise OverflowError("float infinity to integer")

    monkeypatch.setitem(PANES, "steps", replace(PANES["steps"], parts=overflow))
    assert "these figures can't be drawn" in text_after(tui.judged(), "1")
    assert "regime: overhead" in text_after(tui.judged(), "1", "0")


def test_y_copies_what_is_meant() -> None:
    async def work(desk: Desk) -> None:
        for keys, copied in (
            ((), "Limited by host: "),
            (("3", "down"), "optimizer.foreach"),
            (("2", "down"), "batch_probe"),
            (("5",), "schema = 1"),
        ):
            await desk.show(tui.kept() if "5" in keys else tui.judged())
            await desk.press(*keys, "y")
            assert copied in desk.pilot.app.clipboard
            assert "copied: " in desk.text

    at_desk(tui.judged(), work)
