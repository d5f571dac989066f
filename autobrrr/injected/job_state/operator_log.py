"""The operators that a thread runs, by a profiler of torch's: they run as they would without it.

In: two moments on the training thread. Out: the names between them, in order. A dispatch mode can't
promise that: some code of torch takes another way under one. Nothing is measured on a device, and no
thread is begun. Before the job switches on a profiler of its own, or forks, the log ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
from _thread import get_ident
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from ..live_torch.patches import Patch, first, patched, take_off_all

_ENABLING = (("profiler", "_enable_profiler"), ("profiler_legacy", "_enable_profiler_legacy"))


def before_enabling(do: Callable[..., object]) -> list[Patch]:
    """Patches, put on, that call this before a profiler is switched on."""
    return [
        patch
        for module, name in _ENABLING
        for patch in patched(sys.modules.get(f"torch.autograd.{module}"), name, first(do))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """What ran.

    Attributes:
        events: On the thread itself, in order: a name where an operator or a derivative begins, None where
            one ends.
        products: Shapes of what `matmul` took there.
        elsewhere: Names of what ran on other threads of autograd's.
        whole: The log did not end before its time.
    """

    events: list[str | None]
    elsewhere: frozenset[str]
    whole: bool
    products: frozenset[tuple[tuple[int, ...], ...]] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """All names."""
        return self.elsewhere.union(name for name in self.events if name is not None)


class OperatorLog:
    """One log; it can be started again."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._owner = 0
        self._cut: Logged | None = None
        self._witnesses: list[Patch] = []
        self.on = False

    def start(self) -> bool:
        """Log what this thread runs; False where this torch can't, or a profiler is on."""
        autograd, inside = self._torch.autograd, self._torch._C
        if self.on or autograd._profiler_enabled():
            return False
        try:
            plain = inside._profiler._ExperimentalConfig()
            config = autograd.ProfilerConfig(
                autograd.ProfilerState.CPU, True, False, False, False, False, plain
            )
            inside._autograd._enable_profiler_legacy(config)
        except (AttributeError, TypeError, RuntimeError):
            return False
        self.on, self._owner, self._cut = True, get_ident(), None
        self._witnesses += before_enabling(self._give_way)
        self._witnesses += patched(os, "fork", first(self._give_way))
        return True

    def stop(self) -> Logged | None:
        """What ran since the start; None without a start, and from another thread: there the log stays on."""
        if not self.on:
            cut, self._cut = self._cut, None
            return cut
        return self._off(whole=True) if get_ident() == self._owner else None

    def _give_way(self, *_: object, **__: object) -> None:
        """A child would log for ever, and two profilers can't be on."""
        if self.on and get_ident() == self._owner:
            with contextlib.suppress(Exception):
                self._cut = self._off(whole=False)

    def _off(self, *, whole: bool) -> Logged | None:
        self.on = False
        take_off_all(self._witnesses)
        if not self._torch.autograd._profiler_enabled():
            return None
        threads = self._torch._C._autograd._disable_profiler_legacy()
        own: list[str | None] = []
        elsewhere: set[str] = set()
        products: set[tuple[tuple[int, ...], ...]] = set()
        for events in threads:
            here: list[str | None] = []
            for event in events:
                name = event.name()
                here.append(name or None)  # the end of one has no name
                if name == "aten::matmul":
                    products.add(tuple(map(tuple, event.shapes())))
            if here[:1] == ["__start_profile"]:
                own += here[1:-1]
            else:
                elsewhere.update(name for name in here if name)
        return Logged(events=own, elsewhere=frozenset(elsewhere), whole=whole, products=frozenset(products))
