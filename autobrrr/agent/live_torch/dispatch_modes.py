"""A dispatch mode that hands every operator to a handler, and contexts in which the job's modes see nothing.

The class is made once per torch. What we read off tensors within a step is read `unseen`; operators of ours
between steps run `unwatched`: none of our work has to wait until such a mode ends.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import ModuleType

Operator = Callable[..., object]
Handler = Callable[[Operator, tuple[object, ...], dict[str, object]], object]


def dispatch_mode(torch: ModuleType, handler: Handler) -> AbstractContextManager[object]:
    """A mode, not yet entered."""
    return _mode_class(torch)(handler)


def within_backward(torch: ModuleType) -> bool:
    """Whether a backward runs on this thread, one of autograd's own too."""
    number: Callable[[], int] | None = getattr(getattr(torch, "_C", None), "_current_graph_task_id", None)
    return number is not None and number() != -1


def unseen() -> AbstractContextManager[object]:
    """A context in which no function mode and no tensor of the job's own runs code for what we read."""
    inside = getattr(sys.modules.get("torch"), "_C", None)
    made: Callable[[], AbstractContextManager[object]] = getattr(inside, "DisableTorchFunction", nullcontext)
    return made()


@contextmanager
def unwatched(torch: ModuleType) -> Iterator[None]:
    """A context in which operators of ours run no code of the job's: no mode, no hook on saved tensors."""
    with ExitStack() as stack:
        stack.enter_context(unseen())
        stack.enter_context(torch.utils._python_dispatch._disable_current_modes())
        if saves_by_hooks(torch):  # those on top are the only ones that are called
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(_same, _same))
        yield


def _same(tensor: object) -> object:
    return tensor


def saves_by_hooks(torch: ModuleType) -> bool:
    """Whether hooks on saved tensors are active."""
    inside = getattr(torch._C, "_autograd", None)
    hooks = getattr(inside, "_top_saved_tensors_default_hooks", None)  # from torch 2.3
    return hooks is not None and hooks(False) is not None


@functools.lru_cache(maxsize=1)
def _mode_class(torch: ModuleType) -> Callable[[Handler], AbstractContextManager[object]]:
    class HandledDispatchMode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[name-defined, misc]
        # A higher order operator under a mode that does not announce this raises, in the user's step.
        supports_higher_order_operators = True

        def __init__(self, handler: Handler) -> None:
            super().__init__()
            self.handler = handler

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else torch wraps the handler, and imports all of dynamo at its first call

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True  # else what the job compiles within the step runs uncompiled, or raises

        def __torch_dispatch__(
            self,
            operator: Operator,
            types: object,
            args: tuple[object, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> object:
            return self.handler(operator, args, kwargs or {})

    return HandledDispatchMode
