"""Results on standard output: exact where a program reads them; in colour and wrapped on a terminal.

What is coloured is figures and names that every result has; a word of a verdict has its colour from one
table. `NO_COLOR` and `TERM=dumb` are honoured.
"""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING

from autobrrr.cli.narration import NARRATOR, narrate
from autobrrr.cli.output_file import write_file
from autobrrr.report.text_table import fitted

if TYPE_CHECKING:  # --help need not import it
    import argparse

    from autobrrr.records import Record
    from autobrrr.report.page_model import ReportPage

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
