"""The list of all jobs: what it shows at which width, and where Enter leads."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable

import msgspec

from autobrrr.errors import AutobrrrError
from autobrrr.records import Diagnosis, JobLine
from autobrrr_tui.app import AutobrrrApp
from autobrrr_tui.screens.jobs_screen import TopScreen
from autobrrr_tui.screens.session_screen import SessionScreen
from autobrrr_tui.view_state import Source
from support.screens import tui
from support.screens.tui_screen import no_idling, shown
from support.sessions.client import PlayedClient

JOBS = [
    tui.job_line(101, script="/home/a/train_vit.py", rank=0, attached=True),
    tui.job_line(102, script="-m pkg.fit"),
    tui.job_line(103, script="two\nlines.py", attachable=False, why="stopped"),
]


class Session(PlayedClient):
    """A connection of the list's own."""

    def __init__(self, pid: int) -> None:
        if pid != 101:
            raise AutobrrrError("no such session")

    def snapshot(self) -> Diagnosis:
        return tui.snapshot(pid=101)


def after(
    *keys: str, size: tuple[int, int] = (80, 24), jobs: Callable[[], list[JobLine]] = lambda: JOBS
) -> tuple[str, list[int], int]:
    """What the list shows after these keys, which jobs were gone into, how deep the screens lie."""
    entered: list[int] = []
    listed = threading.Event()

    def list_jobs() -> list[JobLine]:
        listed.set()
        return jobs()

    def enter(pid: int) -> Source:
        entered.append(pid)
        return tui.FakeSource(tui.judged())

    async def run() -> tuple[str, int]:
        app = AutobrrrApp(TopScreen(list_jobs, enter, Session), environ={})
        async with app.run_test(size=size) as pilot:
            await asyncio.to_thread(listed.wait, 20)
            for _ in range(500):
                await pilot.pause()
                if "looking for" not in shown(app):
                    break
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
            return shown(app), sum(isinstance(screen, SessionScreen) for screen in app.screen_stack)

    with no_idling():
        text, deep = asyncio.run(run())
    return text, entered, deep


def test_script_state_regime_and_the_way_out_are_seen_at_a_narrow_width() -> None:
    text, _, _ = after(size=(60, 16))
    attached, ready, odd = (
        next(line for line in text.splitlines() if f" {pid} " in line) for pid in (101, 102, 103)
    )
    assert "attached" in attached
    assert "overhead" in attached
    assert "4.20 ms" in attached
    assert "train_v" in attached
    assert "-m pkg.fit" in ready
    assert "two\\nlines" in odd
    assert text.splitlines()[-1].endswith("quit")


def test_enter_goes_into_the_chosen_job_and_escape_comes_back() -> None:
    text, entered, deep = after("down", "enter")
    assert (entered, deep) == ([102], 1)
    assert "regime: overhead" in text
    text, _, deep = after("down", "enter", "escape")
    assert deep == 0
    assert "training jobs on this machine" in text


def test_a_wide_list_says_whose_a_job_is_and_what_it_takes_and_shows_the_chosen_one() -> None:
    jobs = [
        msgspec.structs.replace(
            JOBS[0],
            user="ada",
            arguments="--lr 0.1",
            age_ns=100 * 10**9,
            cpu_ns=150 * 10**9,
            rss_bytes=412 << 20,
        ),
        *JOBS[1:],
    ]
    text, _, _ = after(size=(160, 40), jobs=lambda: jobs)
    first = next(line for line in text.splitlines() if line.startswith("> 101 "))
    for word in ("ada", "150 %", "412 MB", "1:40", "overhead", "4.20 ms", "train_vit.py"):
        assert word in first
    assert "/home/a/train_vit.py --lr 0.1" in text, "in the details of the job under the cursor"
    assert "Limited by host" in text, "the verdict of the job under the cursor"
    text, _, _ = after("down", "down", size=(160, 40), jobs=lambda: jobs)
    assert "Limited by host" not in text
    assert re.search(r"│ why +stopped", text)


def test_jobs_can_be_searched_and_sorted() -> None:
    aged = [msgspec.structs.replace(job, age_ns=age_ns) for job, age_ns in zip(JOBS, (5, 9, 7), strict=True)]
    text, _, _ = after(*["s"] * 3, size=(100, 30), jobs=lambda: aged)
    places = [text.index(f" {pid} ") for pid in (102, 103, 101)]
    assert places == sorted(places)
    assert "age▼" in text
    text, _, _ = after("slash", *"fit", "enter")
    assert "1 of 3 hold 'fit'" in text
    assert " 101 " not in text
    _, entered, deep = after("slash", *"fit", "enter", "enter")
    assert (entered, deep) == ([102], 1)


def test_ranks_of_one_job_stand_together() -> None:
    jobs = [
        tui.job_line(pid, script="a.py", rank=rank, job=job)
        for pid, rank, job in ((11, 1, "x"), (12, None, None), (13, 0, "x"))
    ]
    text, _, _ = after(jobs=lambda: jobs)
    order = [text.index(f" {pid} ") for pid in (13, 11)]
    assert order == sorted(order)
    assert text[order[0] : order[1]].count("a.py") == 1
