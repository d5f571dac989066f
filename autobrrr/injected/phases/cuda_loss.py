"""Whether a loss on a CUDA device is finite, found out one sampled step later and without waiting.

In: the loss of each sampled step. It is copied into page-locked memory behind the work that is queued
already on its device, with an event after it. Out: what the last copy showed, once its event has passed;
the host asks, and never waits for it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Protocol, cast

from .loss_value import UNKNOWN, loss_finite

KINDS = ("torch.float32", "torch.float64", "torch.float16", "torch.bfloat16")


class CudaEvent(Protocol):
    """What is used of a CUDA event."""

    def record(self, stream: object) -> None: ...
    def query(self) -> bool: ...


class Scalar(Protocol):
    """What is used of a tensor."""

    is_cuda: bool
    dtype: object
    device: object

    def numel(self) -> int: ...
    def detach(self) -> Scalar: ...
    def reshape(self, shape: tuple[int, ...]) -> Scalar: ...
    def copy_(self, other: Scalar, non_blocking: bool) -> object: ...
    def zero_(self) -> object: ...


class DeviceLoss:
    """The loss of one sampled step, on its way to the host."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._event: CudaEvent | None = None
        self._events: dict[str, CudaEvent] = {}  # an event belongs to one device
        self._on_its_way: Scalar | None = None
        self._memory: dict[str, Scalar] = {}
        self.broken = False  # it raised once: not tried again

    def finite(self, loss: object) -> int:
        """FINITE, NOT_FINITE or UNKNOWN: of this loss on the CPU, of an earlier one on a device."""
        if isinstance(loss, (list, tuple)):
            loss = loss[0] if loss else None
        if type(loss).__name__ != "Tensor" or self.broken or not getattr(loss, "is_cuda", False):
            return loss_finite(loss)
        try:
            arrived = self._arrived()
            if self._on_its_way is None:
                self._send(cast(Scalar, loss))
        except (RuntimeError, AttributeError, TypeError):
            # The loss is the job's; whatever is wrong with it, the job will meet and say it.
            self.broken, self._on_its_way = True, None
            return UNKNOWN
        return arrived

    def _arrived(self) -> int:
        memory, event = self._on_its_way, self._event
        if memory is None or event is None or not event.query():
            return UNKNOWN
        self._on_its_way = None
        return loss_finite(memory)

    def _send(self, loss: Scalar) -> None:
        torch, kind = self._torch, str(loss.dtype)
        if loss.numel() != 1 or kind not in KINDS or self._watched():
            return
        memory = self._memory.get(kind)
        if memory is None:
            memory = self._memory[kind] = torch.empty((), dtype=loss.dtype, pin_memory=True)
        device = loss.device
        event = self._events.get(str(device))
        if event is None:
            event = self._events[str(device)] = torch.cuda.Event()
        memory.zero_()  # whatever becomes of the copy, no number is made up
        memory.copy_(loss.detach().reshape(()), non_blocking=True)
        # The copy went to the loss's device; an event on the current one could pass before it.
        event.record(torch.cuda.current_stream(device))
        self._event, self._on_its_way = event, memory

    def _watched(self) -> bool:
        """A mode of the job would see our copy, or a graph that is captured would hold it."""
        modes = getattr(self._torch._C, "_len_torch_dispatch_stack", None)
        return bool((modes is not None and modes()) or self._torch.cuda.is_current_stream_capturing())
