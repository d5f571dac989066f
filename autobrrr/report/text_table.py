"""Rows under headings as text: columns as wide as they must be, cells wrapped within their column.

In: rows of cells, and the width of a terminal or None. Out: lines without colour.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from io import StringIO

UNBOUNDED = 1 << 20  # nobody wraps what a program reads
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


def hung(line: str, width: int) -> list[str]:
    """A line that is too long, wrapped between words; what follows stands below its text, not its name."""
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return [line]
    import textwrap

    label = LABEL.match(line)
    indent = len(label.group(1)) if label else len(line) - len(line.lstrip()) + 2
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * min(indent, width // 3),
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )
