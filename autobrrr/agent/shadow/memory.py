"""Whether a larger batch fits into memory: what a replay needs against what the machine has left."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

_HEADROOM = 1.25


def needed_bytes(saved_bytes: int, parameter_bytes: int, scale: float) -> int:
    """Bytes that one replay needs at its peak.

    Args:
        saved_bytes: Kept for the backward in a replay at the size that was counted.
        parameter_bytes: All parameters: their second gradients.
        scale: Size wanted, over the size that was counted.
    """
    return int(_HEADROOM * (1.5 * saved_bytes * scale + parameter_bytes))


def available_bytes(torch: ModuleType, root: Path) -> int | None:
    """Bytes that can be taken without harm; the device's where parameters live there.

    Args:
        torch: The target's torch.
        root: Where `proc` and `sys` are; "/" but in tests.
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        free, _ = torch.cuda.mem_get_info()
        idle = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int((free + idle) / 2)
    candidates = [_meminfo(root), _control_group(root)]
    known = [found for found in candidates if found is not None]
    return min(known, default=None)


def _meminfo(root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _control_group(root: Path) -> int | None:
    """What the container's limit leaves (cgroup v2, then v1)."""
    for limit_file, usage_file in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            limit = (root / limit_file).read_text().strip()
            usage = (root / usage_file).read_text().strip()
        except OSError:
            continue
        if limit.isdigit() and usage.isdigit():
            return max(0, int(limit) - int(usage))
    return None
