"""Whether a larger batch fits into memory: what a replay needs against what the machine has left."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

_HEADROOM = 1.25
# Of what is kept for the backward, gradients and what the allocator does not use again beside it: processes
# of twice the batch grew by 2.4 (linear layers) to 3.4 times (convolutions) what they kept more.
_PEAK = 3.5


def needed_bytes(saved_bytes: int, parameter_bytes: int, scale: float) -> int:
    """Bytes that one replay needs at its peak.

    Args:
        saved_bytes: Kept for the backward in a replay at the size that was counted.
        parameter_bytes: All parameters: their second gradients.
        scale: Size wanted, over the size that was counted.
    """
    return int(_HEADROOM * (_PEAK * saved_bytes * scale + parameter_bytes))


def largest(batch: int, saved_bytes: int, per_sample_bytes: float, free_bytes: int) -> int:
    """The largest batch of which a step is expected to fit, beside what is taken already.

    Args:
        batch: B.
        saved_bytes: Kept for the backward at B.
        per_sample_bytes: What one more sample adds to that.
        free_bytes: What could be taken at a step boundary, where nothing is kept.
    """
    kept = free_bytes / (_HEADROOM * _PEAK)
    return max(batch, int(batch + (kept - saved_bytes) / per_sample_bytes))


def peak_bytes(saved_bytes: float) -> int:
    """The peak of a step that keeps so much for its backward, above what stays between steps."""
    return int(_PEAK * saved_bytes)


def free_bytes(torch: ModuleType, root: Path) -> int | None:
    """Bytes that nobody uses; the device's where parameters live there."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    known = [found for found in (_meminfo(root), _control_group(root)) if found is not None]
    return min(known, default=None)


def available_bytes(torch: ModuleType, root: Path) -> int | None:
    """Bytes that can be taken without harm; the device's where parameters live there.

    Args:
        torch: The target's torch.
        root: Where `proc` and `sys` are; "/" but in tests.
    """
    free = free_bytes(torch, root)
    on_device = torch.cuda.is_available() and torch.cuda.is_initialized()
    return free if free is None or not on_device else free // 2


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
