"""What the agent knows of the job, as remedies see it: live objects, never copies.

Holds weak references only: the agent must not keep the user's objects alive.
"""

from __future__ import annotations

import weakref
from types import ModuleType


class Job:
    """The live objects of the training loop, as far as hooks have shown them.

    Args:
        torch: The target's own torch module.
    """

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch
        self._optimizers: list[weakref.ref[object]] = []
        self._roots: list[weakref.ref[object]] = []

    @property
    def optimizers(self) -> list[object]:
        """Optimizers that have stepped, in the order in which they fire."""
        return _alive(self._optimizers)

    @property
    def roots(self) -> list[object]:
        """Modules that the loop calls directly."""
        return _alive(self._roots)

    def saw_optimizer(self, optimizer: object) -> bool:
        """Remember an optimizer; whether it is a new one."""
        return _remember(self._optimizers, optimizer)

    def saw_root(self, module: object) -> bool:
        """Remember a root module; whether it is a new one."""
        return _remember(self._roots, module)


def _alive(refs: list[weakref.ref[object]]) -> list[object]:
    return [thing for thing in (ref() for ref in refs) if thing is not None]


def _remember(refs: list[weakref.ref[object]], thing: object) -> bool:
    if any(ref() is thing for ref in refs):
        return False
    refs[:] = [ref for ref in refs if ref() is not None]
    refs.append(weakref.ref(thing))
    return True
