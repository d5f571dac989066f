"""Limits on the host's memory, and what they leave.

In: the machine's figures, the process's own limits and those of the memory groups around it. Out: bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

from ..wire.kernel_texts import whole_number

_UNLIMITED = 1 << 60  # the first version of control groups writes no limit as a large number


def free_bytes(torch: ModuleType, root: Path) -> int | None:
    """Bytes that nobody uses; the device's where parameters live there."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    return host_bytes(root)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """One limit on the host's memory that holds for this process."""

    total_bytes: int
    left: Callable[[], int | None]  # bytes; None where it can no longer be read
    of_group: bool = False


def host_limits(root: Path) -> list[MemoryLimit]:
    """The machine's memory, the limits of the groups around this process, `ulimit -v` and `-d`.

    A limit is looked up here once, what it leaves each time that it is asked: some 50 us.
    """
    found = [_machine(root), _own(root, "address space", "VmSize"), _own(root, "data size", "VmData")]
    of_groups = group_limits(root / "proc/self/cgroup", root / "sys/fs/cgroup")
    return [limit for limit in found if limit is not None] + of_groups


def group_limits(named: Path, top: Path) -> list[MemoryLimit]:
    """The limits of the memory groups around a process.

    Args:
        named: The file that names them, `/proc/PID/cgroup`.
        top: The folder of all groups.
    """
    found = map(_of_group, dict.fromkeys(_groups(named, top)))
    return [limit for limit in found if limit is not None]


def host_bytes(root: Path) -> int | None:
    """Bytes of the host's memory that this process can still take; None where nothing tells it."""
    left = [limit.left() for limit in host_limits(root)]
    return min((each for each in left if each is not None), default=None)


def _machine(root: Path) -> MemoryLimit | None:
    def left() -> int | None:
        found = figure(file, "MemAvailable")
        return None if found is None else found * 1024

    file = root / "proc/meminfo"
    total = figure(file, "MemTotal")
    return MemoryLimit(total_bytes=(total or 0) * 1024, left=left)


def _own(root: Path, limited: str, used: str) -> MemoryLimit | None:
    """`ulimit -v` or `-d`; beyond it any thread's allocation fails."""
    limit = figure(root / "proc/self/limits", f"Max {limited}")

    def left() -> int | None:
        taken = figure(root / "proc/self/status", used)
        return None if taken is None or limit is None else max(0, limit - taken * 1024)

    return None if limit is None else MemoryLimit(total_bytes=limit, left=left)


def figure(file: Path, name: str) -> int | None:
    """The number that a line begins with behind its name; None where the file or the line is not there."""
    return _figure(_text(file), name)


def _figure(text: str, name: str) -> int | None:
    found = re.search(rf"^{name}:?\s+(\d+)", text, re.MULTILINE)
    return None if found is None else int(found[1])


def _text(file: Path) -> str:
    try:
        with open(file, "rb", buffering=0) as raw:  # a look every 50 ms: half the price of `read_text`
            return (raw.read() or b"").decode(errors="replace")
    except OSError:
        return ""


def _groups(named: Path, top: Path) -> Iterator[Path]:
    """Folders of the memory groups that a process is in, and of those around them (cgroup v2, v1)."""
    yield from (top, top / "memory")  # all that a container sees
    for line in _text(named).strip("\n").split("\n"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if line and controllers in ("", "memory"):
            here = top / controllers / path.strip("/")
            yield from (here, *(each for each in here.parents if each.is_relative_to(top)))


def _of_group(group: Path) -> MemoryLimit | None:
    """A group's limit; what it holds that could be dropped counts as left. None without a limit."""
    for limit_name, used_name, cached in (
        ("memory.max", "memory.current", ("inactive_file", "active_file")),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    ):
        limit = whole_number(_text(group / limit_name))
        if limit is not None and limit < _UNLIMITED:
            left = partial(_left_of, group, limit, group / used_name, cached)
            return MemoryLimit(total_bytes=limit, left=left, of_group=True)
    return None


def _left_of(group: Path, limit: int, used_file: Path, cached: tuple[str, ...]) -> int | None:
    used, stat = whole_number(_text(used_file)), _text(group / "memory.stat")
    return None if used is None else max(0, limit - used + sum(_figure(stat, each) or 0 for each in cached))
