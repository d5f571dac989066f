"""Whether a loss is a finite number, read without an operator and without waiting for a device.

Operators would be dispatched: a mode of ours or of the job would see them. A scalar on the CPU is read
from its memory. One on a CUDA device is copied into page-locked memory behind the work that is queued already
on its device, with an event after it: what the copy shows is told one sampled step later, once its event has
passed; the host asks, and never waits for it.
"""

from __future__ import annotations

import ctypes
import math
from types import ModuleType
from typing import cast

from ..live_torch.dispatch_modes import unseen
from ..live_torch.graph_capture import capturing
from ..live_torch.job_signals import OF_TORCH
from ..live_torch.parameter_device import TimedEvent
from ..live_torch.torch_types import Tensor

FINITE, NOT_FINITE, UNKNOWN = 1, 0, -1
_READ = {"torch.float32": ctypes.c_float, "torch.float64": ctypes.c_double}
_HALF_EXPONENT = {"torch.float16": 0x7C00, "torch.bfloat16": 0x7F80}  # all ones: inf or nan


def loss_finite(loss: object) -> int:
    """FINITE or NOT_FINITE of a plain scalar tensor on the CPU, else UNKNOWN.

    Args:
        loss: What backward was called on: a tensor, or several of which the first counts.
    """
    if isinstance(loss, (list, tuple)):
        loss = loss[0] if loss else None
    kind, at = "", 0
    with OF_TORCH:  # a wrapper may have no storage
        if type(loss).__name__ == "Tensor" and loss.is_cpu and loss.numel() == 1:  # type: ignore[attr-defined]
            kind, at = str(loss.dtype), loss.data_ptr()  # type: ignore[attr-defined]
    if not at:
        return UNKNOWN
    if kind in _READ:
        return FINITE if math.isfinite(_READ[kind].from_address(at).value) else NOT_FINITE
    if kind in _HALF_EXPONENT:
        exponent = _HALF_EXPONENT[kind]
        return FINITE if ctypes.c_uint16.from_address(at).value & exponent != exponent else NOT_FINITE
    return UNKNOWN


class DeviceLoss:
    """The loss of one sampled step, on its way to the host."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._event: TimedEvent | None = None
        self._events: dict[str, TimedEvent] = {}  # an event belongs to one device
        self._on_its_way: Tensor | None = None
        self._memory: dict[str, Tensor] = {}
        self.broken = False  # it raised once: not tried again

    def finite(self, loss: object) -> int:
        """FINITE, NOT_FINITE or UNKNOWN: of this loss on the CPU, of an earlier one on a device."""
        with unseen():
            return self._finite(loss)

    def _finite(self, loss: object) -> int:
        if isinstance(loss, (list, tuple)):
            loss = loss[0] if loss else None
        if type(loss).__name__ != "Tensor" or self.broken or not getattr(loss, "is_cuda", False):
            return loss_finite(loss)
        with OF_TORCH:
            if capturing(self._torch):
                return UNKNOWN
            arrived = self._arrived()
            if self._on_its_way is None:
                self._send(cast(Tensor, loss))
            return arrived
        self.broken, self._on_its_way = True, None
        return UNKNOWN

    def _arrived(self) -> int:
        memory, event = self._on_its_way, self._event
        if memory is None or event is None or not event.query():
            return UNKNOWN
        self._on_its_way = None
        return loss_finite(memory)

    def _send(self, loss: Tensor) -> None:
        torch, kind = self._torch, str(loss.dtype)
        if loss.numel() != 1 or (kind not in _READ and kind not in _HALF_EXPONENT) or self._watched():
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
        """A mode of the job would see our copy."""
        modes = getattr(self._torch._C, "_len_torch_dispatch_stack", None)
        return bool(modes is not None and modes())
