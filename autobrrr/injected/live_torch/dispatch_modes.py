"""A dispatch mode that hands every operator to a handler, and what of the job's own would see operators.

The class is made once per torch. What we read off tensors within a step is read `unseen`. A pause of training
that lasts too long ends at the next operator that a handler gets.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter_ns
from types import ModuleType
from typing import Protocol

from .torch_types import Abstain

_OWN = __name__.partition(".")[0]
NO_BACKWARD = -1
_NEVER = 1 << 62
_pause_ends_ns = _NEVER
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


def running_backward(torch: ModuleType) -> int:
    """The number of the backward that runs on this thread, one of autograd's own too; or `NO_BACKWARD`."""
    number: Callable[[], int] | None = getattr(getattr(torch, "_C", None), "_current_graph_task_id", None)
    return NO_BACKWARD if number is None else number()


def unseen() -> AbstractContextManager[object]:
    """A context in which no function mode and no tensor of the job's own runs code for what we read."""
    inside = getattr(sys.modules.get("torch"), "_C", None)
    made: Callable[[], AbstractContextManager[object]] = getattr(inside, "DisableTorchFunction", nullcontext)
    return made()


def foreign_mode(torch: ModuleType) -> str | None:
    """What of the job's own is on, on this thread, and would run for operators of ours: a mode, or hooks."""
    mode = mode_of_the_job(torch)
    if mode is not None:
        return f"a torch {mode[0]} mode of the job's own is active ({type(mode[1]).__name__})"
    inside = getattr(torch._C, "_autograd", None)
    hooks = getattr(inside, "_top_saved_tensors_default_hooks", None)  # from torch 2.3
    if hooks is not None and hooks(False) is not None:
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


@contextmanager
def pause_of(most_ns: int) -> Iterator[None]:
    """Training pauses within, at most for so long: see `end_late_pause`."""
    global _pause_ends_ns
    _pause_ends_ns = perf_counter_ns() + most_ns
    try:
        yield
    finally:
        _pause_ends_ns = _NEVER


def end_late_pause() -> None:
    """Raise `Abstain` where the pause that is on has lasted too long."""
    if perf_counter_ns() > _pause_ends_ns:
        raise Abstain("it paused training for longer than ten times its budget and was cut off")


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
        end_late_pause()
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

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True  # else what the job compiles within the step runs uncompiled, or raises

    return StepMode
