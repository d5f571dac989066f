"""A dispatch mode that hands every operator to a handler. The class is made once per torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Protocol

Operator = Callable[..., object]
Handler = Callable[[Operator, tuple[object, ...], dict[str, object]], object]


class Mode(Protocol):
    """A dispatch mode."""

    handler: Handler | None

    def __enter__(self) -> object: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


def dispatch_mode(torch: ModuleType, handler: Handler) -> Mode:
    """A mode, not yet entered."""
    mode: Mode = _mode_class(torch)()
    mode.handler = handler
    return mode


def leave(torch: ModuleType, mode: AbstractContextManager[object]) -> bool:
    """Leave a mode where it is the innermost one of this thread; whether it was."""
    depth = modes_on_stack(torch)
    if not depth or torch._C._get_dispatch_stack_at(depth - 1) is not mode:
        return False
    mode.__exit__(None, None, None)
    return True


def modes_on_stack(torch: ModuleType) -> int:
    """Dispatch modes that are on, on this thread."""
    return int(torch._C._len_torch_dispatch_stack())


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

    body = {"__torch_dispatch__": __torch_dispatch__, "handler": None}
    return type("HandledDispatchMode", (mode_base(torch),), body)


@functools.lru_cache(maxsize=1)
def mode_base(torch: ModuleType) -> type:
    """torch's class of dispatch modes, for one that is on in the user's own steps."""

    class StepMode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[name-defined, misc]
        # A higher order operator under a mode that does not announce this raises, in the user's step.
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else torch wraps the handler, and imports all of dynamo at its first call

    return StepMode
