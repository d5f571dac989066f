"""Sees collectives in the recorded step, so that none is ever replayed from one rank alone.

Only armed where a process group of two or more ranks exists. DDP's own (in backward, and in the
wrapper around the inner module) are expected; any other rules the probe out.
"""

from __future__ import annotations

from types import ModuleType

from ..live_torch.dispatch_modes import Operator, dispatch_mode, is_on_top

_WRAPPER_DEPTH = 1  # inside the DDP wrapper, outside the module that it wraps


class CollectiveWatch:
    """A dispatch mode on the training thread that remembers a collective it did not expect."""

    def __init__(self, torch: ModuleType) -> None:
        self.depth = 0
        self.in_backward = False
        self.wrapped = False  # the root call under way is DDP's
        self.seen: str | None = None
        self._torch = torch
        self._mode = dispatch_mode(torch, self._handle)
        self._mode.__enter__()

    @classmethod
    def if_distributed(cls, torch: ModuleType) -> CollectiveWatch | None:
        """A watch that is on, or None where there is no other rank."""
        distributed = torch.distributed
        if not distributed.is_available() or not distributed.is_initialized():
            return None
        return cls(torch) if distributed.get_world_size() > 1 else None

    def stop(self) -> bool:
        """Leave the dispatch stack; whether the mode was on its top."""
        self._mode.handler = None
        if not is_on_top(self._torch, self._mode):
            return False
        self._mode.__exit__(None, None, None)
        return True

    def _handle(self, operator: Operator, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        expected = self.in_backward or (self.wrapped and self.depth == _WRAPPER_DEPTH)
        if not expected and "c10d" in str(getattr(operator, "namespace", "")):
            self.seen = str(operator)
        return operator(*args, **kwargs)
