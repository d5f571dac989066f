"""Rows under headings as text: columns as wide as they must be, cells wrapped within their column.

Where too little is left for the columns that give way, every row becomes a paragraph.

In: rows of cells, and the width of a terminal or None. Out: lines without colour.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from io import StringIO

from autobrrr.quantities import JOINED, joined

UNBOUNDED = 1 << 20  # nobody wraps what a program reads
LEAST = 16  # cells of a wrapped column: with fewer, names are torn into syllables
MOST_LABEL = 24  # cells
LABEL = re.compile(r"^(\s*\S+(?: \S+)*?\s{2,})\S")  # of a line: a name, and room up to its text


def text_table(
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    right: Collection[int] = (),
    wrap: Collection[int] = (),
    indent: int = 0,
) -> list[str]:
    """Lines of a table whose first row are headings.

    Args:
        rows: Cells, as many in each row; one line each.
        width: Columns that there are; None: cells are never wrapped.
        right: Columns of figures.
        wrap: Columns of sentences and names, which give way first.
        indent: Blanks before each line.
    """
    if width is not None and not _fits(rows, width - indent, wrap):
        return [f"{' ' * indent}{line}" for line in _paragraphs(rows, width - indent, wrap)]
    from rich.console import Console  # not for --help
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in range(len(rows[0])):
        table.add_column(
            justify="right" if column in right else "left",
            no_wrap=width is None or (bool(wrap) and column not in wrap),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    drawn = StringIO()
    room = UNBOUNDED if width is None else max(1, width - indent)
    Console(file=drawn, width=room, color_system=None, force_terminal=False).print(table)
    return [f"{' ' * indent}{line}".rstrip() for line in drawn.getvalue().splitlines()]


def _fits(rows: Sequence[Sequence[str]], room: int, wrap: Collection[int]) -> bool:
    """Whether every column that is wrapped gets what it needs to be read."""
    from rich.cells import cell_len

    widest = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    least = [min(LEAST, cells) if at in wrap else cells for at, cells in enumerate(widest)]
    return not wrap or sum(least) + 2 * (len(least) - 1) <= room


def _paragraphs(rows: Sequence[Sequence[str]], room: int, wrap: Collection[int]) -> list[str]:
    """A line for the name of each row, then its figures with their heads, then its sentences."""
    heads, *others = rows
    lines: list[str] = []
    for name, *cells in others:
        known = [(at, cell) for at, cell in enumerate(cells, 1) if cell.strip() not in ("", "-")]
        figures = ", ".join(
            f"{heads[at]} {cell}".replace(" ", JOINED) for at, cell in known if at not in wrap
        )
        sentences = [f"{heads[at]}: {cell}" for at, cell in known if at in wrap]
        for line in (f"{heads[0]} {name}", *(f"  {each}" for each in (figures, *sentences) if each)):
            lines += [part.replace(JOINED, " ") for part in hung(line, room)]
    return lines


def fitted(text: str, width: int) -> str:
    """Every line of a text within that many cells."""
    return "\n".join(part for line in text.split("\n") for part in hung(line, width))


def hung(line: str, width: int) -> list[str]:
    """A line that is too long, wrapped between words; what follows stands below its text, not its name."""
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return [line]
    import textwrap

    label = LABEL.match(line)
    named = label is not None and len(label.group(1)) <= MOST_LABEL
    indent = len(label.group(1)) if label and named else len(line) - len(line.lstrip()) + 2
    parts = textwrap.wrap(
        joined(line),
        width,
        subsequent_indent=" " * min(indent, width // 3),
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )
    return [part.replace(JOINED, " ") for part in parts]
