"""Autocast as the step had it: read at each recorded call, entered again around its replay."""

from __future__ import annotations

from contextlib import ExitStack
from types import ModuleType

State = tuple[tuple[str, bool, object], ...]
"""(device type, enabled, dtype) for each device type that can be in use."""


def state(torch: ModuleType) -> State:
    """What autocast is set to on this thread."""
    kinds = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    if hasattr(torch, "get_autocast_dtype"):
        return tuple(
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds
        )
    old = [("cpu", torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype())]
    if len(kinds) > 1:
        old.append(("cuda", torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()))
    return tuple(old)


class AutocastSwitch:
    """Enters the recorded states one after the other; `close` leaves the last.

    Where the loop itself sits inside autocast, its cache of weight casts is neither read nor
    filled: a cast of ours, with our graph behind it, must not come up in a real step.
    """

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._ambient = state(torch)
        self._cache = not any(enabled for _, enabled, _ in self._ambient)
        self._now: State | None = self._ambient if self._cache else None
        self._open = ExitStack()

    def to(self, wanted: State) -> None:
        """Enter a state, leaving the one before."""
        if wanted == self._now:
            return
        self.close()
        if wanted == self._now:
            return
        for kind, enabled, dtype in wanted:
            self._open.enter_context(
                self._torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self._cache)
            )
        self._now = wanted

    def close(self) -> None:
        """Leave what was entered."""
        self._open.close()
        self._now = self._ambient if self._cache else None
