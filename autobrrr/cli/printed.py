"""Results on standard output and in files: exact where a program reads them; coloured, wrapped on a terminal.

Files that the user has named are looked at before the work begins, written after it. What is coloured is
figures and names that every result has; a word of a verdict has its colour from one table. `NO_COLOR` and
`TERM=dumb` are honoured.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from autobrrr.cli.narration import NARRATOR, narrate
from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.report.text_table import fitted

if TYPE_CHECKING:
    import argparse

    from autobrrr.records import Record
    from autobrrr.report.page_model import ReportPage


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
COLOURED = {  # a pattern, and the style of its groups
    r"\bregime: (?P<word>\w+)": "bold",
    r"(?P<word>limited by [a-z]+(?: parts| collection)?)": "bold",
    r"(?P<sure>\(high\)|confidence high)": "green",
    r"(?P<doubt>\(low\)|confidence low|\bprovisional\b)": "yellow",
    r"\b(?P<better>(?:1\.0*[1-9]\d*|[2-9]\d*\.\d+|[1-9]\d+\.\d+)x)(?= \[|$)": "green",
    r"\b(?P<worse>0\.\d+x)(?= \[|$)": "red",
    r"(?P<interval>\[\d+\.\d+–\d+\.\d+\])": "dim",
    r"(?m)^(?P<ok>ok)  ": "green",
    r"(?m)^(?P<warn>warn)  ": "yellow",
    r"(?m)^(?P<fail>FAIL)  ": "bold red",
    r"(?m)^(?P<heads>[A-Z]{3,}(?: +[A-Z-]{3,})+)$": "bold",
    r"(?P<bar>[█━▏]+)": "cyan",
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
        for found in re.finditer(pattern, shown.plain):
            shown.stylize(style, *found.span(1))
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
        show(page_text(page, width))
