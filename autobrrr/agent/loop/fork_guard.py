"""What a forked child does with the agent: it forgets it.

`os.register_at_fork` can't be undone, so we don't use it. After a fork, `logging` calls `_at_fork_reinit` on
every object in the WeakSet it keeps for its handlers. We add one, and it goes away with its last reference.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable


class ForkGuard:
    """Calls `disarm` in every forked child until it is released."""

    __slots__ = ("__weakref__", "_disarm")

    def __init__(self, disarm: Callable[[], None]) -> None:
        self._disarm: Callable[[], None] | None = disarm
        _guards().add(self)

    def _at_fork_reinit(self) -> None:
        disarm, self._disarm = self._disarm, None
        if disarm is not None:
            try:
                disarm()
            except Exception:  # noqa: BLE001
                pass  # a child of somebody else's job: there is nobody to tell

    def release(self) -> None:
        """Forks are no concern of ours any more."""
        self._disarm = None
        _guards().discard(self)


def _guards() -> weakref.WeakSet[ForkGuard]:
    found: weakref.WeakSet[ForkGuard] = logging._at_fork_reinit_lock_weakset  # type: ignore[attr-defined]
    return found
