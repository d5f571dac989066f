"""Whether a larger batch fits into memory: what a replay needs against what the machine has left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ..wire.plain_number import whole_number

_HEADROOM = 1.25
# Of what is kept for the backward, gradients and what the allocator does not use again beside it: processes
# of twice the batch grew by 2.4 (linear layers) to 3.4 times (convolutions) what they kept more.
_PEAK = 3.5
_FIRST_CALLS = 3  # times the parameters: copies, second gradients, activations
# What the log of a step's operators takes: 5 kB each; 110 MiB were seen of 20,000 operators.
_LOG_BYTES = 256 << 20
# What compiling takes beside the job, for each process that compiles and once more: 750 MiB were seen of two.
_COMPILER_BYTES = 256 << 20
_UNLIMITED = 1 << 60  # the first version of control groups writes no limit as a large number


def needed_bytes(saved_bytes: int, parameter_bytes: int, scale: float) -> int:
    """Bytes that one replay needs at its peak.

    Args:
        saved_bytes: Kept for the backward in a replay at the size that was counted.
        parameter_bytes: All parameters: their second gradients.
        scale: Size wanted, over the size that was counted.
    """
    return int(_HEADROOM * (_PEAK * saved_bytes * scale + parameter_bytes))


def shortage(torch: ModuleType, root: Path, parameter_bytes: int) -> str | None:
    """Why nothing may be called yet, where memory is short of three times the parameters.

    The first calls keep a copy of all parameters; second gradients and activations come beside it.
    """
    need, free = _FIRST_CALLS * parameter_bytes, available_bytes(torch, root)
    if free is None or need <= free:
        return None
    return f"a replay needs about {need >> 20} MiB of memory, {free >> 20} MiB are free"


def short_of_a_log(root: Path) -> str | None:
    """Why no step is logged or traced, where what is left of the host's memory could be too little for it."""
    free = _host_bytes(root)
    if free is None or free >= _LOG_BYTES:
        return None
    return f"the log of a step may take {_LOG_BYTES >> 20} MiB of memory, {free >> 20} MiB are free"


def short_of_a_compiler(root: Path, processes: int) -> str | None:
    """Why nothing is compiled, where the host has too little left.

    A control group that is full kills its largest process: the job.
    """
    need, free = (1 + processes) * _COMPILER_BYTES, _host_bytes(root)
    if free is None or free >= need:
        return None
    return f"compiling may take {need >> 20} MiB of memory, {free >> 20} MiB are free"


def largest(batch: int, saved_bytes: int, per_sample_bytes: float, free_bytes: int) -> int:
    """The largest batch of which a step is expected to fit, beside what is taken already; two digits of it.

    Args:
        saved_bytes: Kept for the backward at B.
        per_sample_bytes: What one more sample adds to that.
        free_bytes: What could be taken at a step boundary, where nothing is kept.
    """
    kept = free_bytes / (_HEADROOM * _PEAK)
    fits = int(batch + (kept - saved_bytes) / per_sample_bytes)
    unit = int(10 ** max(0, len(str(fits)) - 2))
    return max(batch, fits // unit * unit)


def peak_bytes(saved_bytes: float) -> int:
    """The peak of a step that keeps so much for its backward, above what stays between steps."""
    return int(_PEAK * saved_bytes)


def free_bytes(torch: ModuleType, root: Path) -> int | None:
    """Bytes that nobody uses; the device's where parameters live there."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    return _host_bytes(root)


def _host_bytes(root: Path) -> int | None:
    known = [_meminfo(root), _addresses(root), _data(root), *left_of_groups(root)]
    return min((found for found in known if found is not None), default=None)


def available_bytes(torch: ModuleType, root: Path) -> int | None:
    """Bytes that can be taken without harm; the device's where parameters live there.

    Args:
        root: Where `proc` and `sys` are; "/" but in tests.
    """
    free = free_bytes(torch, root)
    on_device = torch.cuda.is_available() and torch.cuda.is_initialized()
    return free if free is None or not on_device else free // 2


def _meminfo(root: Path) -> int | None:
    found = figure(root / "proc/meminfo", "MemAvailable")
    return None if found is None else found * 1024


def _addresses(root: Path) -> int | None:
    """What `ulimit -v` leaves of the address space; beyond it any thread's allocation fails."""
    limit = figure(root / "proc/self/limits", "Max address space")
    used = figure(root / "proc/self/status", "VmSize")
    return None if limit is None or used is None else max(0, limit - used * 1024)


def _data(root: Path) -> int | None:
    """What `ulimit -d` leaves of private memory; likewise."""
    limit = figure(root / "proc/self/limits", "Max data size")
    used = figure(root / "proc/self/status", "VmData")
    return None if limit is None or used is None else max(0, limit - used * 1024)


def figure(file: Path, name: str) -> int | None:
    """The number that a line begins with behind its name; None where the file or the line is not there."""
    try:
        found = re.search(rf"^{name}:?\s+(\d+)", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1])


def left_of_groups(root: Path) -> list[int | None]:
    """Bytes that each memory group around this process leaves; None of one without a limit."""
    return [_left_of(group) for group in _groups(root)]


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the memory groups that the job is in, and of those around them (cgroup v2, v1)."""
    top = root / "sys/fs/cgroup"
    yield from (top, top / "memory")  # all that a container sees
    try:
        lines = (root / "proc/self/cgroup").read_text().strip("\n").split("\n")
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if line and controllers in ("", "memory"):
            here = top / controllers / path.strip("/")
            yield from (here, *(each for each in here.parents if each.is_relative_to(top)))


def _left_of(group: Path) -> int | None:
    """A group's limit less what it holds that could not be dropped; None without a limit."""
    for limit_name, used_name, cached in (
        ("memory.max", "memory.current", ("inactive_file", "active_file")),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    ):
        try:
            limit, used = (whole_number((group / name).read_text()) for name in (limit_name, used_name))
        except OSError:
            continue
        if limit is None or used is None or limit >= _UNLIMITED:
            return None
        return max(0, limit - used + sum(figure(group / "memory.stat", each) or 0 for each in cached))
    return None
