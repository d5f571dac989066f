"""A dispatch mode that hands every operator to a handler, and what of the job's own would see operators.

The class is made once per torch. What we read off tensors within a step is read `unseen`; operators of ours
between steps run `unwatched`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import ModuleType
from typing import Protocol

_OWN = __name__.partition(".")[0]
NO_BACKWARD = -1
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


def modes_on_stack(torch: ModuleType) -> int:
    """Dispatch modes that are on, on this thread."""
    return int(torch._C._len_torch_dispatch_stack())


def running_backward(torch: ModuleType) -> int:
    """The number of the backward that runs on this thread, one of autograd's own too; or `NO_BACKWARD`."""
    number: Callable[[], int] | None = getattr(getattr(torch, "_C", None), "_current_graph_task_id", None)
    return NO_BACKWARD if number is None else number()


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


def foreign_mode(torch: ModuleType) -> str | None:
    """What of the job's own is on, on this thread, and would run for operators of ours: a mode, or hooks."""
    mode = mode_of_the_job(torch)
    if mode is not None:
        return f"a torch {mode[0]} mode of the job's own is active ({type(mode[1]).__name__})"
    if saves_by_hooks(torch):
        return "hooks of the job's own on saved tensors are active"
    return None


def mode_of_the_job(torch: ModuleType) -> tuple[str, object] | None:
    """The kind of a mode of the job's own that is on, on this thread, and the mode."""
    dispatch = [torch._C._get_dispatch_stack_at(index) for index in range(modes_on_stack(torch))]
    for kind, modes in (("dispatch", dispatch), ("function", function_modes(torch))):
        for mode in modes:
            # What `torch.set_default_device` puts on only says where tensors are made.
            home = str(type(mode).__module__).partition(".")[0]
            if home != _OWN and type(mode).__name__ != "DeviceContext":
                return kind, mode
    return None


def function_modes(torch: ModuleType) -> list[object]:
    """Function modes of this thread, the innermost last."""
    count: int = torch._C._len_torch_function_stack()
    return [torch._C._get_function_stack_at(index) for index in range(count)]


def runs_own_code(torch: ModuleType, kind: type) -> bool:
    """Whether tensors of this kind run code of their own for each function or operator that takes them."""
    if kind in (torch.Tensor, torch.nn.Parameter):
        return False
    function = getattr(kind, "__torch_function__", None)
    usual = (torch._C._disabled_torch_function_impl, torch.Tensor.__torch_function__.__func__)
    dispatch = getattr(kind, "__torch_dispatch__", torch._C._disabled_torch_dispatch_impl)
    return (
        getattr(function, "__func__", function) not in usual
        or dispatch is not torch._C._disabled_torch_dispatch_impl
    )


@functools.lru_cache(maxsize=1)
def _mode_class(torch: ModuleType) -> type[Mode]:
    class HandledDispatchMode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[name-defined, misc]
        # A higher order operator under a mode that does not announce this raises, in the user's step.
        supports_higher_order_operators = True
        handler: Handler | None = None

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
            if self.handler is None:
                return operator(*args, **(kwargs or {}))
            return self.handler(operator, args, kwargs or {})

    return HandledDispatchMode
