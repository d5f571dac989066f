"""A dispatch mode that hands every operator to a handler. The class is made once per torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Protocol

Operator = Callable[..., object]
Handler = Callable[[Operator, tuple[object, ...], dict[str, object]], object]


class Mode(Protocol):
    """A dispatch mode."""

    handler: Handler | None

    def __enter__(self) -> object: ...
    def __exit__(self, kind: object, error: object, trace: object) -> object: ...


def dispatch_mode(torch: ModuleType, handler: Handler) -> Mode:
    """A mode, not yet entered."""
    mode: Mode = _mode_class(torch)()
    mode.handler = handler
    return mode


def is_on_top(torch: ModuleType, mode: Mode) -> bool:
    """Whether the mode is the innermost one of this thread."""
    stack = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return bool(stack) and stack[-1] is mode


@functools.lru_cache(maxsize=1)
def _mode_class(torch: ModuleType) -> type[Mode]:
    def __torch_dispatch__(
        self: Mode,
        operator: Operator,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        if self.handler is None:
            return operator(*args, **(kwargs or {}))
        return self.handler(operator, args, kwargs or {})

    base = torch.utils._python_dispatch.TorchDispatchMode
    return type("HandledDispatchMode", (base,), {"__torch_dispatch__": __torch_dispatch__, "handler": None})
