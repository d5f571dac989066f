"""What of a list is shown, and in which order: the search and the sort of one mode.

In: lines of any kind, what the user typed and chose. Out: the lines to show, the heads of their columns,
and a row that says how many are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from autobrrr_tui.text_rows import Row, padded, piece, row

T = TypeVar("T")
WIDE = 110  # cells of a screen from which on the details stand beside a list


@dataclass(frozen=True, slots=True, kw_only=True)
class ListChoice:
    """One list as the user wants it."""

    search: str = ""  # a line is shown where it holds every word of this
    sort: int = 0  # number of one of the list's sorts; 0 is the list's own order


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSort(Generic[T]):
    """One order of a list; lines without a key come last."""

    column: str  # under this head stands the arrow
    key: Callable[[T], float | str | None]
    falling: bool = False


UNCHANGED = ListChoice()


def listed(
    lines: Sequence[T], choice: ListChoice, sorts: Sequence[ListSort[T]], words: Callable[[T], str]
) -> list[T]:
    """The lines to show, in their order. `words` is what is searched of a line."""
    wanted = choice.search.casefold().split()
    found = [line for line in lines if all(word in words(line).casefold() for word in wanted)]
    sort = chosen(sorts, choice)
    if sort is None:
        return found
    keys = [(key, at) for at, line in enumerate(found) if (key := sort.key(line)) is not None]
    order = [at for _, at in sorted(keys, key=lambda each: _comparable(each[0]), reverse=sort.falling)]
    return [found[at] for at in (*order, *sorted(set(range(len(found))) - set(order)))]


def chosen(sorts: Sequence[ListSort[T]], choice: ListChoice) -> ListSort[T] | None:
    """The sort that is on; None for the list's own order."""
    return sorts[choice.sort - 1] if 0 < choice.sort <= len(sorts) else None


def head(name: str, cells: int, sort: ListSort[T] | None, *, right: bool = False) -> str:
    """The head of a column, with an arrow where the list is sorted by it."""
    if sort is not None and sort.column == name:
        name += "▼" if sort.falling else "▲"
    return f"{name:>{cells}}" if right else padded(name, cells)


def left_out(shown: int, of: int, choice: ListChoice) -> list[Row]:
    """How many lines the search has found; nothing where nothing is searched."""
    if not choice.search:
        return []
    return [row(piece(f"  {shown} of {of} hold {choice.search!r}", "warn"), piece("   Esc shows all", "dim"))]


def detail_cells(width: int) -> int:
    """Cells of the details beside a list on a screen of this width; 0 where they open over it."""
    return min(56, max(40, width // 3)) if width >= WIDE else 0


def _comparable(key: float | str) -> tuple[float, str]:
    return (0.0, key.casefold()) if isinstance(key, str) else (key, "")
