"""Draws rows; when new rows come, only those that differ are drawn again.

Also keeps what can be chosen among them, and how far it is scrolled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from autobrrr.report.palette import COLOURS
from autobrrr.report.text_rows import BLANK, Page, Row


class Lines(Widget, can_focus=False):
    """Rows of one page, in the colours of the theme that is worn."""

    class Chosen(Message):
        """What stands under the cursor has been entered."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class Picked(Message):
        """The cursor was put somewhere else with the mouse."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._page = Page(rows=[])
        self._top = 0
        self._drawn: list[tuple[Row, bool]] = []  # the rows in sight, and which is chosen
        self.picked: str | None = None
        self._newest_last = False
        self._follows = False  # the last row is kept in sight, with the cursor on the last name

    @property
    def rows(self) -> list[Row]:
        return self._page.rows

    def show(self, page: Page) -> None:
        """Show these rows instead."""
        shown, self._page = self._page, page
        if self._follows:
            self.picked = next(reversed(page.picks.values()), None)
        elif self.picked not in page.picks.values():
            self.picked = next(iter(page.picks.values()), None)
        was, now = _place(shown, self.picked), _place(page, self.picked)
        saw = bool(shown.picks) if was is None else self._shows(was)
        if saw and now is not None and not self._shows(now):
            self._top = now - self.size.height // 2
        if self._follows:
            self._top = len(page.rows)
        self._settle()
        self._draw()

    def restart(self, *, newest_last: bool = False) -> None:
        """Another page comes: from its top, or from its end, which is kept in sight."""
        self._top, self.picked, self._newest_last, self._follows = 0, None, newest_last, newest_last
        self._page = Page(rows=[])

    def move(self, by: int) -> None:
        """The cursor to the next row that can be chosen, or scroll where there is none."""
        places = [at for at, name in self._page.picks.items() if name == self.picked]
        beyond = sorted(at for at in self._page.picks if places and (at - places[0]) * by > 0)
        if places and beyond:
            at = beyond[0] if by > 0 else beyond[-1]
            self.picked = self._page.picks[at]
            if not self._shows(at):
                self._top = at - self.size.height // 2
        else:
            self._top += by
        self._settle()
        self._follows = self._newest_last and self.picked == next(reversed(self._page.picks.values()), None)
        self._draw()

    def scroll_rows(self, by: int) -> None:
        """Up or down, without the cursor."""
        self._top += by
        self._settle()
        self._follows = self._newest_last and self._top + self.size.height >= len(self._page.rows)
        self._draw()

    def render_line(self, y: int) -> Strip:
        """One line of the widget."""
        return self._strip(*self._seen(self._top + y))

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda theme: self.refresh() and None)

    def on_resize(self, event: events.Resize) -> None:
        self._settle()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.scroll_rows(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.scroll_rows(-3)

    def on_click(self, event: events.Click) -> None:
        name = self._page.picks.get(self._top + event.y)
        if name is None:
            return
        if name == self.picked:
            self.post_message(self.Chosen(name))
        else:
            self.picked, self._follows = name, False
            self.post_message(self.Picked())

    def _strip(self, line: Row, marked: bool) -> Strip:
        tones = styles(not self.app.current_theme.dark)
        base = self.rich_style
        segments = []
        for text, tone, action in line:
            style = base + tones.get(tone, Style.null())
            if action:
                style += Style.from_meta({"@click": action})
            segments.append(Segment(text, style))
        strip = Strip(segments)
        width = self.size.width
        if strip.cell_length > width > 1 and strip.crop(width).text.strip():  # not only blanks are cut off
            strip = Strip.join([strip.crop(0, width - 1), Strip([Segment("…", base)])])
        strip = strip.adjust_cell_length(width, base)
        if marked:
            mark = Strip([Segment(">", base + tones["key"])])
            strip = Strip.join([mark, strip.crop(1)]).apply_style(tones["strong"])
        return strip

    def _shows(self, at: int) -> bool:
        """Whether a row is in sight."""
        return self._top <= at < self._top + self.size.height

    def _draw(self) -> None:
        """Draw the rows in sight that differ from those drawn before."""
        now = [self._seen(at) for at in range(self._top, self._top + self.size.height)]
        changed = [
            Region(0, y, self.size.width, 1) for y, each in enumerate(now) if self._drawn[y : y + 1] != [each]
        ]
        self._drawn = now
        if changed:
            self.refresh(*changed)

    def _seen(self, at: int) -> tuple[Row, bool]:
        line = self._page.rows[at] if at < len(self._page.rows) else BLANK
        name = self._page.picks.get(at)
        return line, name is not None and name == self.picked

    def _settle(self) -> None:
        last = max(0, len(self._page.rows) - self.size.height)
        self._top = min(max(0, self._top), last)


def _place(page: Page, name: str | None) -> int | None:
    """The row on which a name can be chosen."""
    return next((at for at, each in page.picks.items() if each == name), None)


ON_WHITE = {"yellow": "magenta", "bright_yellow": "bright_black", "bright_cyan": "cyan", "white": "black"}
DARK: Mapping[str, str] = {
    "": "",
    "muted": "dim",
    "strong": "bold",
    "title": "bold cyan",
    "head": "bold yellow",
    "better": "green",
    "worse": "bold red",
    "warn": "yellow",
    "accent": "cyan",
    "code": "cyan",
    "key": "bold blue",
    "off": "dim strike",
    "here": "bold reverse",
    **{name: hue.screen for name, hue in COLOURS.items()},
}
LIGHT: Mapping[str, str] = {
    **DARK,
    "title": "bold blue",
    "head": "bold magenta",
    "warn": "magenta",
    "accent": "blue",
    "code": "blue",
    **{name: ON_WHITE.get(hue.screen, hue.screen) for name, hue in COLOURS.items()},
}


def is_light(environ: Mapping[str, str]) -> bool:
    """Whether the terminal says that its background is light."""
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return background in ("7", "15")


@cache
def styles(light: bool) -> dict[str, Style]:
    """A style for every tone."""
    return {tone: Style.parse(words) for tone, words in (LIGHT if light else DARK).items()}
