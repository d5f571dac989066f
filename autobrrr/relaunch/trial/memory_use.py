"""How much memory a trial takes, and how much there is.

In: its processes, limits of this machine. Out: bytes, None where they can't be read. Memory is what would not
be there without the trial: anonymous and shared pages, at their peak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autobrrr.agent.live_torch.available_memory import host_limits

CONTEXT_BYTES = 600 << 20  # of a GPU, that the driver holds for a process beside the allocator


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """Of the machine's memory, and of the GPU's."""

    memory: int | None = None
    gpu: int | None = None

    @property
    def telling(self) -> int | None:
        """Of the GPU where there is one, else of the machine."""
        return self.memory if self.gpu is None else self.gpu


def taken(pids: Iterable[int], reserved: int | None = None, proc: Path = Path("/proc")) -> Bytes:
    """What these processes have taken at most. Those that are gone count nothing.

    Args:
        reserved: By the allocator of torch, of a GPU; None without one.
    """
    memory: int | None = None
    for pid in pids:
        status = _figures(proc / str(pid) / "status")
        shares = _figures(proc / str(pid) / "smaps_rollup")
        if "VmHWM" not in status or "Pss_Anon" not in shares:
            continue
        own = shares["Pss_Anon"] + shares.get("Pss_Shmem", 0)
        memory = (memory or 0) + own + max(0, status["VmHWM"] - status["VmRSS"])
    return Bytes(memory=memory, gpu=None if reserved is None else reserved + CONTEXT_BYTES)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory that could be taken now, also by the limits of the groups that we are in; None: unreadable."""
    found = _figures(root / "proc/meminfo").get("MemAvailable")
    groups = [limit.left() for limit in host_limits(root) if limit.of_group]
    known = [each for each in (found, *groups) if each is not None]
    return min(known, default=None)


def _figures(file: Path) -> dict[str, int]:
    """Lines such as `VmHWM:  123 kB`, in bytes."""
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return {}
    return {name: int(count) * 1024 for name, count in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
