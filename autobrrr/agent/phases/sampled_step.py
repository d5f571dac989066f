"""One sampled step: the phase clock, page faults, garbage collections, the accelerator's memory, the loss.

In: the boundary times of the step. Out: the fields of the sampled part of a ring record.
"""

from __future__ import annotations

import ctypes
import gc
import math
import sys
from array import array
from collections.abc import Mapping
from time import perf_counter_ns
from types import ModuleType
from typing import cast

from ..live_torch.dispatch_modes import unseen
from ..live_torch.graph_capture import capturing
from ..live_torch.job_signals import OF_TORCH
from ..live_torch.parameter_device import TimedEvent
from ..live_torch.torch_types import Tensor
from .phase_clock import NAMES, PhaseClock

MEMORY_EVERY_NS = 100_000_000  # the allocator's figures are slow to read, and change slowly
_THREAD = 1  # RUSAGE_THREAD
_WORDS = (0,) * 18  # struct rusage: two times of two words each, then 14 counts
_MINOR_FAULTS = 8  # ru_minflt
FINITE, NOT_FINITE, UNKNOWN = 1, 0, -1
_READ = {"torch.float32": ctypes.c_float, "torch.float64": ctypes.c_double}
_HALF_EXPONENT = {"torch.float16": 0x7C00, "torch.bfloat16": 0x7F80}  # all ones: inf or nan


class GarbageClock:
    """How long Python's garbage collector holds training up, between the two ends of a sampled step.

    A collection stops every Python thread, so those that the agent's own thread sets off count as well.
    """

    def __init__(self) -> None:
        self._since = 0
        self._spent_ns = 0
        self._callback = self._called

    def put_on(self) -> None:
        """Begin anew."""
        self._since = self._spent_ns = 0
        if self._callback not in gc.callbacks:
            gc.callbacks.append(self._callback)

    def take_off(self) -> int:
        """End; nanoseconds since it was put on. From any thread, also twice."""
        try:
            gc.callbacks.remove(self._callback)
        except ValueError:
            pass  # the user has cleared the list, or it was off
        return self._spent_ns

    def _called(self, phase: str, info: Mapping[str, object]) -> None:
        if phase == "start":
            self._since = perf_counter_ns()
        elif self._since:
            self._spent_ns += perf_counter_ns() - self._since
            self._since = 0


def loss_finite(loss: object) -> int:
    """FINITE or NOT_FINITE of a plain scalar tensor on the CPU, read from its memory, else UNKNOWN.

    An operator would be dispatched, and any active torch mode would see it.
    """
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
    """The loss of one sampled step, on its way to the host.

    One on a CUDA device is copied into page-locked memory behind the work that is queued already on its
    device, with an event after it: what the copy shows is told one sampled step later, once its event has
    passed; the host asks, and never waits for it.
    """

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._on_its_way: tuple[Tensor, TimedEvent] | None = None
        self._memory: dict[str, Tensor] = {}
        self.broken = False  # it raised once: not tried again

    def finite(self, loss: object) -> int:
        """FINITE, NOT_FINITE or UNKNOWN: of this loss on the CPU, of an earlier one on a device."""
        if isinstance(loss, (list, tuple)):
            loss = loss[0] if loss else None
        with unseen():
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
        if self._on_its_way is None or not self._on_its_way[1].query():
            return UNKNOWN
        memory, self._on_its_way = self._on_its_way[0], None
        return loss_finite(memory)

    def _send(self, loss: Tensor) -> None:
        torch, kind = self._torch, str(loss.dtype)
        modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
        watched = modes is not None and modes()  # a mode of the job would see our copy
        if loss.numel() != 1 or (kind not in _READ and kind not in _HALF_EXPONENT) or watched:
            return
        memory = self._memory.get(kind)
        if memory is None:
            memory = self._memory[kind] = torch.empty((), dtype=loss.dtype, pin_memory=True)
            # Never freed: freeing it while the job captures a graph would end the process.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        torch.autograd._enable_record_function(False)  # neither the job's profiler nor ours sees our copy
        try:
            memory.zero_()  # whatever becomes of the copy, no number is made up
            memory.copy_(loss.detach().reshape(()), non_blocking=True)
        finally:
            torch.autograd._enable_record_function(True)
        # The copy went to the loss's device; an event on the current one could pass before it.
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(loss.device))
        self._on_its_way = memory, event


class Sampling:
    """Reads what a sampled step needs at its two ends."""

    def __init__(self, torch: ModuleType, phases: PhaseClock) -> None:
        self._phases = phases
        self._faults = 0
        self._garbage = GarbageClock()
        self._loss = DeviceLoss(torch)
        self._read_memory_ns: int | None = None
        self.by_name: dict[str, int] = {}

    def begin(self, now: int) -> None:
        """The step begins."""
        self._faults = minor_faults()
        self._garbage.put_on()
        self._phases.begin(now)

    def finish(
        self, now: int, *, fires: int, forward_measured: bool, optimizer_measured: bool
    ) -> tuple[int, ...]:
        """The step ends: the sampled fields, in the ring's order."""
        phases = self._phases
        garbage_ns = self._garbage.take_off()
        spent = phases.finish(now)
        measured = {"forward": forward_measured, "optimizer": optimizer_measured}
        self.by_name = {name: ns for name, ns in zip(NAMES, spent, strict=True) if measured.get(name, True)}
        _other, data_wait, forward, backward, optimizer = spent
        faults = minor_faults() - self._faults
        allocated, reserved = self._memory(now)
        loss, phases.loss = phases.loss, None
        return (
            data_wait,
            forward if forward_measured else -1,
            backward,
            optimizer if optimizer_measured else -1,
            phases.backwards + (phases.backward_depth > 0),
            phases.fires + fires,
            phases.samples,
            faults,
            allocated,
            reserved,
            garbage_ns,
            self._loss.finite(loss),
            phases.tokens,
        )

    def _memory(self, now: int) -> tuple[int, int]:
        """The allocator's figures, once a burst at most; -1 in between."""
        last = self._read_memory_ns
        if last is not None and now - last < MEMORY_EVERY_NS:
            return -1, -1
        self._read_memory_ns = now
        return accelerator_bytes()

    def take_off(self) -> None:
        """The step is given up."""
        self._phases.loss = None
        self._garbage.take_off()


def accelerator_bytes() -> tuple[int, int]:
    """Allocated and reserved memory of the current CUDA device; -1 where CUDA is not in use.

    Both out of one call: `memory_stats`, of which torch makes two for them, flattens hundreds of figures.
    """
    if not cuda_in_use():
        return -1, -1
    torch = sys.modules["torch"]
    stats = torch._C._cuda_memoryStats(torch.cuda.current_device())
    allocated, reserved = stats["allocated_bytes"], stats["reserved_bytes"]
    return int(allocated["all"]["current"]), int(reserved["all"]["current"])


def cuda_in_use() -> bool:
    """The job has initialised CUDA; never initialises it."""
    asked = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)
    return bool(asked is not None and asked())


_getrusage = ctypes.pythonapi["getrusage"]  # by way of Python's own library, which keeps the GIL
_getrusage.argtypes, _getrusage.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_int


def minor_faults() -> int:
    """This thread's page faults that needed no disk, since it began."""
    found = array("l", _WORDS)
    if _getrusage(_THREAD, found.buffer_info()[0]) != 0:
        raise OSError("the kernel tells no usage")
    return found[_MINOR_FAULTS]
