"""The one replacement of `DataLoader.__iter__` in this process: who listens hears that an epoch begins.

In: who listens. Out: a call with the loader just before torch makes its iterator.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType

from .job_signals import ANY
from .patches import Patch, prepared

Begins = Callable[[object], "Callable[[object], None] | None"]
"""Called with a loader; what it returns is called with the iterator that torch makes."""


class LoaderEpochs:
    """Who listens, in the order in which they came."""

    def __init__(self) -> None:
        self._listeners: list[Begins] = []
        self._patches: list[Patch] = []
        self._pid = 0

    def listen(self, torch: ModuleType, begins: Begins) -> None:
        """Hear of each epoch from now on."""
        if not self._patches:
            self._pid = os.getpid()
            data = getattr(getattr(torch, "utils", None), "data", None)
            self._patches = prepared(getattr(data, "DataLoader", None), "__iter__", self._wrapped)
        self._listeners.append(begins)
        for patch in self._patches:
            patch.put_on()

    def leave(self, begins: Begins) -> list[str]:
        """Hear no more; the name of the replacement where it has to stay below somebody else's."""
        self._listeners = [each for each in self._listeners if each != begins]
        if not self._listeners:
            self._patches = [one for one in self._patches if not one.take_off()]
            return [one.name for one in self._patches]
        return []

    def _wrapped(self, original: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(original)
        def __iter__(loader: object) -> object:
            if os.getpid() != self._pid:
                return original(loader)
            shown_to = []
            for begins in self._listeners:  # one that comes meanwhile hears of this epoch too
                with ANY:  # the epoch begins as without us
                    shown_to.append(begins(loader))
            iterator = original(loader)
            for show in filter(None, shown_to):
                with ANY:  # a DataLoader subclass may return any iterator
                    show(iterator)
            return iterator

        return __iter__


EPOCHS = LoaderEpochs()
