"""What a command says beside its result: lines and one status line, all on standard error.

A line stays. The status (what happens now, and how long that takes) is one line that is rewritten on a
terminal and gone before anything else is printed; elsewhere it is a line whenever its subject changes.
"""

from __future__ import annotations

import shutil
import sys
import threading
from enum import IntEnum
from typing import TYPE_CHECKING

from autobrrr.readable import readable

if TYPE_CHECKING:
    from rich.progress import Progress

TURNS_PER_S = 4  # of the spinner: it takes CPU beside a job that is measured


class Loudness(IntEnum):
    """How much is said; `-q` and `-v`."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


class Narrator:
    """Standard error of one command; several threads may speak."""

    def __init__(self) -> None:
        self.loudness = Loudness.NORMAL
        self._lock = threading.Lock()
        self._subject = ""
        self._drawn: Progress | None = None

    def say(self, text: str) -> None:
        """A line that stays, one line whatever it holds; the status goes on below it."""
        if self.loudness is not Loudness.QUIET:
            self._line(f"autobrrr: {readable(text)}")

    def fault(self, text: str) -> None:
        """What went wrong and what to do: also where nothing else is to be said."""
        self.clear()
        self._line(text)

    def next_step(self, text: str) -> None:
        """The last line of a result: what to type now."""
        self.clear()
        if self.loudness is not Loudness.QUIET:
            self._line(f"next: {readable(text)}")

    def status(self, text: str, left_s: float | None = None, *, subject: str | None = None) -> None:
        """What happens now.

        Args:
            left_s: How long it takes at most; None where nobody knows.
            subject: What it is about, where the text changes all the time.
        """
        about = text if subject is None else subject
        with self._lock:
            is_new, self._subject = about != self._subject, about
            drawn = sys.stderr.isatty() and self.loudness is not Loudness.QUIET
            if drawn:
                self._draw(readable(text), left_s, is_new)
        if is_new and (self.loudness is Loudness.VERBOSE or not drawn):
            self.say(text)

    def clear(self) -> None:
        """Nothing happens any more: the status is taken away."""
        with self._lock:
            drawn, self._drawn, self._subject = self._drawn, None, ""
        if drawn is not None:
            drawn.stop()

    def _line(self, line: str) -> None:
        sys.stdout.flush()
        if sys.stderr.isatty():
            from autobrrr.report.text_table import fitted

            line = fitted(line, shutil.get_terminal_size().columns)
        with self._lock:
            if self._drawn is not None:
                self._drawn.console.print(line, markup=False, highlight=False, soft_wrap=True)
                return
        print(line, file=sys.stderr, flush=True)

    def _draw(self, text: str, left_s: float | None, is_new: bool) -> None:
        left = "" if left_s is None else f"up to {max(0.0, left_s):.0f} s left"
        if self._drawn is None:
            self._drawn = _progress()
            self._drawn.add_task(text, left=left)
            self._drawn.start()
        else:
            self._drawn.update(self._drawn.task_ids[0], description=text, left=left, refresh=is_new)


def _progress() -> Progress:
    from rich.console import Console  # not for --help
    from rich.progress import Progress, SpinnerColumn, TextColumn
    from rich.table import Column

    cut = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=cut),
        TextColumn("{task.fields[left]}", style="dim", markup=False, table_column=Column(no_wrap=True)),
        console=Console(stderr=True, highlight=False),
        transient=True,
        refresh_per_second=TURNS_PER_S,
        redirect_stdout=False,
        redirect_stderr=False,
        expand=True,
    )


NARRATOR = Narrator()


def narrate(text: str) -> None:
    """A line of narration on standard error."""
    NARRATOR.say(text)
