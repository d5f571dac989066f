"""Page faults, as the kernel counts them.

Not by the module `resource`: torch does not bring it, so importing it would look through the job's folders,
run a `resource.py` that lies beside the script, and wait where their storage hangs. In: whose. Out: counts.
"""

from __future__ import annotations

import ctypes
from array import array

PROCESS, THREAD = 0, 1  # RUSAGE_SELF, RUSAGE_THREAD
_WORDS = (0,) * 18  # struct rusage: two times of two words each, then 14 counts
_MINOR_FAULTS = 8  # ru_minflt
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
