"""Draws the screen at four sizes, at the end of the recording that ships: `docs/images/screen-*.svg`.

`python docs/pictures.py` writes them, and the list of remedies. They load no font from elsewhere.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tui")]

from autobrrr_tui.app import AutobrrrApp  # noqa: E402
from autobrrr_tui.screens.session_screen import SessionScreen, Updated  # noqa: E402
from autobrrr_tui.sources.replay_source import RECORDING, ReplaySource, read  # noqa: E402

IMAGES = Path(__file__).parent / "images"
SIZES = ((60, 16), (80, 24), (120, 40), (200, 60))
FOREIGN_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class Pictured(SessionScreen):
    """A session screen that tells when it has drawn its first view."""

    drawn: asyncio.Event

    def on_updated(self, message: Updated) -> None:
        super().on_updated(message)
        self.drawn.set()


async def picture(size: tuple[int, int], *keys: str) -> str:
    """The SVG of the screen after these keys."""
    screen = Pictured(ReplaySource(read(RECORDING), title="demo"), export_to=Path())
    screen.drawn = asyncio.Event()
    app = AutobrrrApp(screen, environ={})
    async with app.run_test(size=size) as pilot:
        await screen.drawn.wait()
        await pilot.press(*keys)
        await pilot.pause()
        return FOREIGN_FONT.sub("", app.export_screenshot(title="autobrrr"))


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for size in SIZES:
        (IMAGES / f"screen-{size[0]}x{size[1]}.svg").write_text(asyncio.run(picture(size)))
    (IMAGES / "remedies-120x40.svg").write_text(asyncio.run(picture((120, 40), "3")))


if __name__ == "__main__":
    main()
