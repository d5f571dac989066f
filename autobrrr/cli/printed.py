"""What a command prints: its result on standard output or in files, all else on standard error.

A result is exact where a program reads it; coloured, wrapped on a terminal. What is coloured is figures and
names that every result has. `NO_COLOR` and `TERM=dumb` are honoured. On standard error a line stays. The
status (what happens now, and how long that takes) is one line that is rewritten on a terminal and gone before
anything else is printed; elsewhere it is a line whenever its subject changes.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.readable import readable
from autobrrr.report.text_rows import fitted

if TYPE_CHECKING:
    import argparse

    from rich.live import Live

    from autobrrr.records import Record
    from autobrrr.report.page_model import ReportPage


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
        self._drawn: Live | None = None

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
            line = fitted(line, shutil.get_terminal_size().columns)
        with self._lock:
            if self._drawn is not None:
                self._drawn.console.print(line, markup=False, highlight=False, soft_wrap=True)
                return
        print(line, file=sys.stderr, flush=True)

    def _draw(self, text: str, left_s: float | None, is_new: bool) -> None:
        from rich.console import Console  # not for --help
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.table import Column, Table
        from rich.text import Text

        left = "" if left_s is None else f"up to {max(0.0, left_s):.0f} s left"
        columns = Column(no_wrap=True, overflow="ellipsis", ratio=1), Column(no_wrap=True, style="dim")
        shown = Table.grid(*columns, padding=(0, 1), expand=True)
        shown.add_row(Text(text), left)
        if self._drawn is None:
            self._spinner = Spinner("dots", shown)
            self._drawn = Live(
                self._spinner,
                console=Console(stderr=True, highlight=False),
                transient=True,
                refresh_per_second=TURNS_PER_S,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._drawn.start()
        else:
            self._spinner.update(text=shown)
            if is_new:
                self._drawn.refresh()


NARRATOR = Narrator()
narrate = NARRATOR.say  # a line of narration


def check_places(*targets: Path | str | None) -> None:
    """Whether a file can come to be at each place that was named.

    Raises:
        UsageError: a folder is not there, or a file's name is a folder's.
    """
    for target in targets:
        if not target:
            continue
        path = Path(target).absolute()
        if not path.parent.is_dir():
            raise UsageError(f"the folder of {target} does not exist", "create it first")
        if path.is_dir():
            raise UsageError(f"{target} is a folder", "name a file in it")


def write_file(
    target: Path | str, text: str, hint: str = "", *, failure: type[AutobrrrError] = AutobrrrError
) -> None:
    """Write a file anew.

    Raises:
        AutobrrrError: it can't be written; as `failure`, with this hint.
    """
    is_new = not os.path.lexists(target)
    try:
        Path(target).write_bytes(text.encode())
    except OSError as error:
        if is_new:
            with suppress(OSError):
                os.unlink(target)
        raise failure(f"{target} could not be written: {error.strerror}", hint) from None


LEAST_COLUMNS = 30
COLOURED = {  # a pattern, and its style
    r"(?<=\bregime: )\w+": "bold",
    r"limited by [a-z]+(?: parts| collection)?": "bold",
    r"\(high\)|confidence high": "green",
    r"\(low\)|confidence low|\bprovisional\b": "yellow",
    r"\b(?:1\.0*[1-9]\d*|[2-9]\d*\.\d+|[1-9]\d+\.\d+)x(?= \[|$)": "green",
    r"\b0\.\d+x(?= \[|$)": "red",
    r"\[\d+\.\d+–\d+\.\d+\]": "dim",
    r"(?m)^ok(?=  )": "green",
    r"(?m)^warn(?=  )": "yellow",
    r"(?m)^FAIL(?=  )": "bold red",
    r"(?m)^[A-Z]{3,}(?: +[A-Z-]{3,})+$": "bold",
    r"[█━▏]+": "cyan",
}


def columns() -> int | None:
    """The width of the terminal; None where nobody looks at one."""
    return max(LEAST_COLUMNS, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def show(text: str) -> None:
    """Print a result; the status line is gone before it."""
    NARRATOR.clear()
    width = columns()
    if width is None:
        print(text, flush=True)
        return
    from rich.console import Console  # not for --help, and not for a pipe
    from rich.text import Text

    shown = Text(fitted(text, width))
    for pattern, style in COLOURED.items():
        shown.highlight_regex(pattern, style)
    Console(width=width, highlight=False).print(shown, soft_wrap=True)


def deliver(
    args: argparse.Namespace,
    found: Record,
    page: ReportPage,
    html: ReportPage | None = None,
    width: int | None = 80,
) -> None:
    """A result as `--html FILE` and `--json` ask for it, else as text.

    Args:
        page: For text, and for the file unless `html` is given.
    """
    from autobrrr.records import to_json
    from autobrrr.report.page_text import page_text

    if args.html:
        from autobrrr.report.html.page_template import page_html

        write_file(args.html, page_html(html or page))
        narrate(f"wrote {args.html}")
    NARRATOR.clear()
    if args.json:
        print(to_json(found), flush=True)
    else:
        show(page_text(page, min((each for each in (width, columns()) if each), default=None)))
