"""Drives the app as a person would, in memory: a view goes in, keys are pressed, text comes out."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from textual.pilot import Pilot

from autobrrr_tui.app import AutobrrrApp
from autobrrr_tui.screens.session_screen import SessionScreen
from autobrrr_tui.view_state import View
from support.screens.tui import FakeSource


async def nothing_is_due(_: float = 0.0, most_s: float = 1.0) -> None:
    """Until the loop has nothing to do; textual sleeps for 20 ms, and on while the process takes CPU."""
    loop, begun_s = asyncio.get_running_loop(), time.monotonic()
    while True:
        await asyncio.sleep(0.002)
        if not loop._ready or time.monotonic() - begun_s > most_s:  # type: ignore[attr-defined]
            return


@contextmanager
def no_idling() -> Iterator[None]:
    """The app is driven as fast as it goes."""
    with (
        patch("textual.app.wait_for_idle", nothing_is_due),
        patch("textual.pilot.wait_for_idle", nothing_is_due),
    ):
        yield


def shown(app: AutobrrrApp) -> str:
    """What the terminal shows now, without colours."""
    lines = app.screen._compositor.render_strips()
    return "\n".join(line.text.rstrip() for line in lines)


class Desk:
    """A session screen with a made-up source, while the app runs."""

    def __init__(self, pilot: Pilot[None], screen: SessionScreen, source: FakeSource) -> None:
        self.pilot, self.screen, self.source = pilot, screen, source

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def show(self, view: View) -> None:
        """A new view comes from the source."""
        self.source.publish(view)
        await self.pilot.pause()

    async def told(self, text: str) -> None:
        """The source answers the last request."""
        self.source.tell(text)
        await self.pilot.pause()

    @property
    def text(self) -> str:
        return shown(self.pilot.app)  # type: ignore[arg-type]


def at_desk(
    view: View,
    work: Callable[[Desk], Awaitable[None]],
    *,
    size: tuple[int, int] = (80, 24),
    export_to: Path = Path("/nonexistent"),
    environ: dict[str, str] | None = None,
    clock_s: Callable[[], float] = lambda: 0.0,
) -> FakeSource:
    """Open a screen on a view, do the work, leave; returns the source with the requests it got."""
    source = FakeSource(view)

    async def run() -> None:
        screen = SessionScreen(source, export_to=export_to, clock_s=clock_s)
        app = AutobrrrApp(screen, environ=environ or {})
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await work(Desk(pilot, screen, source))

    with no_idling():
        asyncio.run(run())
    return source


def text_after(view: View, *keys: str, size: tuple[int, int] = (80, 24), **options: object) -> str:
    """What stands on the screen after these keys."""
    found: list[str] = []

    async def work(desk: Desk) -> None:
        await desk.press(*keys)
        found.append(desk.text)

    at_desk(view, work, size=size, **options)  # type: ignore[arg-type]
    return found[0]
