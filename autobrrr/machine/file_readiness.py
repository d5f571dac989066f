"""Whether a socket or pipe can be read now; of any number, where `select.select` ends at 1023."""

from __future__ import annotations

import math
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import HasFileno


def is_readable(file: HasFileno, timeout_s: float | None = 0.0) -> bool:
    """Whether something is there, or the other side has closed; waits for it, without end where `None`."""
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    return bool(waiting.poll(None if timeout_s is None else math.ceil(1000 * max(0.0, timeout_s))))
