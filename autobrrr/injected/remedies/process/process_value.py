"""One value of the whole process: read, set, and put back unless somebody else has set it meanwhile.

The shape of every remedy on interpreter, allocator and thread settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..registry import Undo

T = TypeVar("T")


def switch(read: Callable[[], T], write: Callable[[T], object], wanted: T) -> Undo:
    """Set a value; the undo puts the former one back where ours still stands."""
    before = read()
    write(wanted)
    ours = read()

    def undo() -> None:
        if read() == ours:
            write(before)

    return undo
