"""What a forked child does with the agent: it forgets it.

`os.register_at_fork` can't be taken back, so it is not used where the standard library offers a
weak list of its own: `logging` calls `_at_fork_reinit` in the child for every object in a WeakSet
that it keeps for its handlers. An object of ours in there costs nothing and leaves with its last
reference. Where that set is missing, one inert callback per process is registered, found again
under an attribute of the `os` module.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable

_FALLBACK = "_autobrrr_at_fork"


class ForkGuard:
    """Calls `disarm` in every forked child until it is released."""

    __slots__ = ("__weakref__", "_disarm")

    def __init__(self, disarm: Callable[[], None]) -> None:
        self._disarm: Callable[[], None] | None = disarm

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


def guard(disarm: Callable[[], None]) -> ForkGuard:
    """Call `disarm` in forked children from now on."""
    made = ForkGuard(disarm)
    _guards().add(made)
    return made


def _all(kept: weakref.WeakSet[ForkGuard]) -> None:
    for one in list(kept):
        one._at_fork_reinit()


def _guards() -> weakref.WeakSet[ForkGuard]:
    found: weakref.WeakSet[ForkGuard] | None = getattr(logging, "_at_fork_reinit_lock_weakset", None)
    if found is not None:
        return found
    kept: weakref.WeakSet[ForkGuard] | None = getattr(os, _FALLBACK, None)
    if kept is None:
        kept = weakref.WeakSet()
        setattr(os, _FALLBACK, kept)
        os.register_at_fork(after_in_child=lambda: _all(kept))
    return kept
