"""A process beside training, in the job's own Python: below all others, and gone with its sidecar."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

NICER = 15  # than the sidecar
LAST = 10  # niceness of its session among sessions: a tenth of a CPU that all want
PR_SET_PDEATHSIG = 1


def give_way() -> None:
    """Training comes first. Linux weighs whole sessions where they are groups of their own (autogroups)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # its sidecar ends: nobody waits for it
    os.nice(NICER)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:
        group.write(str(LAST))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # short of memory, the kernel ends this one first
