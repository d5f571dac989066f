"""Whether a loss is a finite number, read without an operator.

Tensor methods would be dispatched: a mode of ours or of the job would see them, and on a GPU they
would wait for the device. A scalar on the CPU is read from its memory.
"""

from __future__ import annotations

import ctypes
import math

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
    try:
        if type(loss).__name__ != "Tensor" or not loss.is_cpu or loss.numel() != 1:  # type: ignore[attr-defined]
            return UNKNOWN
        kind, at = str(loss.dtype), loss.data_ptr()  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError, NotImplementedError):  # a wrapper without memory of its own
        return UNKNOWN
    if not at:
        return UNKNOWN
    if kind in _READ:
        return FINITE if math.isfinite(_READ[kind].from_address(at).value) else NOT_FINITE
    if kind in _HALF_EXPONENT:
        exponent = _HALF_EXPONENT[kind]
        return FINITE if ctypes.c_uint16.from_address(at).value & exponent != exponent else NOT_FINITE
    return UNKNOWN
