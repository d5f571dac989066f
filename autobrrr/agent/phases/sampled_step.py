"""One sampled step: the phase clock, page faults, garbage collections, the accelerator's memory.

In: the boundary times of the step. Out: the fields of the sampled part of a ring record.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from array import array
from collections.abc import Mapping
from time import perf_counter_ns
from types import ModuleType

from .loss_value import DeviceLoss
from .phase_clock import NAMES, PhaseClock

MEMORY_EVERY_NS = 100_000_000  # the allocator's figures are slow to read, and change slowly
PROCESS, THREAD = 0, 1  # RUSAGE_SELF, RUSAGE_THREAD
_WORDS = (0,) * 18  # struct rusage: two times of two words each, then 14 counts
_MINOR_FAULTS = 8  # ru_minflt


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
        self._faults = minor_faults(THREAD)
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
        faults = minor_faults(THREAD) - self._faults
        allocated, reserved = self._memory(now)
        loss, phases.loss = phases.loss, None
        return (
            data_wait,
            -1,
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
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not cuda_in_use():
        return -1, -1
    nested = getattr(sys.modules["torch"]._C, "_cuda_memoryStats", None)
    if nested is None:
        return int(cuda.memory_allocated()), int(cuda.memory_reserved())
    stats = nested(cuda.current_device())
    allocated, reserved = stats["allocated_bytes"], stats["reserved_bytes"]
    return int(allocated["all"]["current"]), int(reserved["all"]["current"])


def cuda_in_use() -> bool:
    """The job has initialised CUDA; never initialises it."""
    asked = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)
    return bool(asked is not None and asked())


_getrusage = ctypes.pythonapi["getrusage"]  # by way of Python's own library, which keeps the GIL
_getrusage.argtypes, _getrusage.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_int


def minor_faults(whose: int) -> int:
    """Page faults that needed no disk, since it began."""
    return _read(whose)[_MINOR_FAULTS]


def _read(whose: int) -> array[int]:
    found = array("l", _WORDS)
    if _getrusage(whose, found.buffer_info()[0]) != 0:
        raise OSError("the kernel tells no usage")
    return found
