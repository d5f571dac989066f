"""The app: one session, or the list of all; colours, the command palette, leaving.

Everything that waits happens on threads of sources; this thread only draws.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.events import Resize
from textual.geometry import Size
from textual.screen import Screen

from autobrrr_tui.screens.list_screen import KEYS, MODES
from autobrrr_tui.screens.session_screen import SessionScreen
from autobrrr_tui.view_state import Source
from autobrrr_tui.widgets.row_widget import is_light

if TYPE_CHECKING:
    from autobrrr_tui.screens.jobs_screen import Enter, ListJobs

LOOK_S = 1.0  # between looks whether the terminal is still there


def has_terminal() -> bool:
    """False once the terminal was closed: its end of the line then gives an error, or no keys for ever."""
    try:
        return os.isatty(sys.__stdin__.fileno()) if sys.__stdin__ is not None else False
    except (OSError, ValueError):
        return False


class AutobrrrApp(App[None]):
    """Shows `first`; further screens are put on top of it."""

    CSS_PATH = "styles.tcss"
    TITLE = "autobrrr"
    BINDINGS = [Binding("ctrl+c", "leave", show=False, priority=True)]
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, first: Screen[None], *, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__(ansi_color=True)
        self._first = first
        self.theme = "ansi-light" if is_light(environ) else "ansi-dark"

    def on_mount(self) -> None:
        self.push_screen(self._first)
        if has_terminal():  # a hang-up may be ignored, as under nohup: then nobody would ever leave
            self.set_interval(LOOK_S, self._look_at_terminal)

    def _look_at_terminal(self) -> None:
        """Leave where it is gone; take its size where the news of it was lost.

        textual tells its screens of a new size from a timer that it drops where a busy machine makes it late.
        """
        if not has_terminal():
            self.exit()
        elif not self.is_headless and sys.__stdin__ is not None:
            with suppress(OSError):  # it has just gone
                size = Size(*os.get_terminal_size(sys.__stdin__.fileno()))
                for screen in self.screen_stack if size != self.screen.size else ():
                    screen.post_message(Resize(size, size))

    def action_leave(self) -> None:
        self.exit()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette: everything that has a key, then light and dark."""
        for key in KEYS:
            run = getattr(screen, f"action_{key.action}", None)
            if run is not None:
                yield SystemCommand(key.word.capitalize(), key.means, run)
        if isinstance(screen, SessionScreen):
            for name in MODES:
                yield SystemCommand(
                    f"Mode: {name}", f"show {name}", lambda name=name: screen.action_mode(name)
                )
        yield SystemCommand("Theme: dark", "colours for a dark terminal", lambda: self._wear("ansi-dark"))
        yield SystemCommand("Theme: light", "colours for a light terminal", lambda: self._wear("ansi-light"))

    def _wear(self, theme: str) -> None:
        self.theme = theme


def show(source: Source, *, for_s: float | None = None) -> None:
    """Show one session until the user leaves, the time is up, or it can't be opened: the caller says why."""
    AutobrrrApp(SessionScreen(source, export_to=Path.cwd(), for_s=for_s, leave_when_refused=True)).run()


def show_top(list_jobs: ListJobs, enter: Enter) -> None:
    """Show all jobs until the user leaves.

    Args:
        enter: Makes the source of the job with this pid.
    """
    from autobrrr_tui.screens.jobs_screen import TopScreen  # one session paints without it

    AutobrrrApp(TopScreen(list_jobs, enter)).run()
