"""The control groups of a process, v1 and v2: is it frozen, what room is left, does a limit stop it?

In go a pid, the root of proc and the folder of the groups. All groups from the process's own up to the root
have limits that hold; what can't be read is no limit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autobrrr.agent.live_torch.available_memory import group_limits
from autobrrr.machine import kernel_text
from autobrrr.machine.kernel_text import number
from autobrrr.machine.procfs import PROC

GROUPS = Path("/sys/fs/cgroup")
_MOST_BYTES = 1 << 16
_OOM_FILES = ("memory.events", "memory.oom_control")  # v2, v1


def is_frozen(pid: int, proc: Path = PROC, root: Path = GROUPS) -> bool:
    """Whether the freezer of its control group holds the process."""
    for folder in _folders(pid, "freezer", proc, root)[:1]:
        if _word(folder / "freezer.state") in ("FROZEN", "FREEZING"):
            return True
    return any("frozen 1" in _lines(folder / "cgroup.events") for folder in _folders(pid, "", proc, root)[:1])


def spare_memory_bytes(pid: int, proc: Path = PROC, root: Path = GROUPS) -> int | None:
    """What the process may still take before its control group kills; None without a limit.

    Files that the kernel has read ahead or keeps for later count as spare, since it drops them first.
    """
    left = [limit.left() for limit in group_limits(proc / str(pid) / "cgroup", root)]
    return min((each for each in left if each is not None), default=None)


def oom_counter(pid: int, proc: Path = PROC, root: Path = GROUPS) -> Callable[[], int | None]:
    """Counts the kernel's kills for want of memory in the process's group, or on the machine without one.

    It may be asked when the process is gone; None where the group is gone too.
    """
    files = [folder / name for folder in _holding(pid, "memory", proc, root)[:1] for name in _OOM_FILES]
    counted = next((file for file in (*files, proc / "vmstat") if "oom_kill" in _figures(file)), None)
    return lambda: None if counted is None else _figures(counted).get("oom_kill")


def spare_tasks(pid: int, proc: Path = PROC, root: Path = GROUPS) -> tuple[int, int] | None:
    """Threads that may still be started, and the limit that says so; None without a limit."""
    spare = []
    for folder in _holding(pid, "pids", proc, root):
        most, taken = (number(_word(folder / f"pids.{name}")) for name in ("max", "current"))
        if most is not None and taken is not None:
            spare.append((max(0, most - taken), most))
    return min(spare, default=None)


def cpu_quota(pid: int, proc: Path = PROC, root: Path = GROUPS) -> float | None:
    """CPUs' worth of time that its group (v2) or one above it grants; None without a limit."""
    limits = []
    for folder in _folders(pid, "", proc, root):
        quota, _, period = _word(folder / "cpu.max").partition(" ")
        granted, every = number(quota), number(period)
        if granted is not None and every:
            limits.append(granted / every)
    return min(limits, default=None)


def throttled_ns(pid: int, proc: Path = PROC, root: Path = GROUPS) -> int | None:
    """How long the CPU limit of its group (v2) has stopped a process; None without a limit."""
    for folder in _folders(pid, "", proc, root)[:1]:
        figures = _figures(folder / "cpu.stat")
        stopped_us = figures.get("throttled_usec")
        return None if stopped_us is None or figures.get("nr_periods") == 0 else 1_000 * stopped_us
    return None


def _holding(pid: int, controller: str, proc: Path, root: Path) -> list[Path]:
    return _folders(pid, controller, proc, root) or _folders(pid, "", proc, root)


def _folders(pid: int, controller: str, proc: Path, root: Path) -> list[Path]:
    """The group of a v1 controller (of v2 where the name is empty) and those around it, its own first.

    Where the path is one of another namespace, its beginning is not there: the root alone is left.
    """
    for line in _lines(proc / str(pid) / "cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not path.startswith("/"):
            continue
        if (controller in controllers.split(",")) if controller else controllers == "":
            top = root / controllers
            if not controllers and not (root / "cgroup.controllers").exists():
                top = root / "unified"  # v2 beside v1
            own = top / path.strip("/") if ".." not in path.split("/") else top
            around = [own, *(each for each in own.parents if each.is_relative_to(top))]
            return [folder for folder in around if folder.is_dir()]
    return []


def _figures(file: Path) -> dict[str, int]:
    """The lines of a file that are a name and a number, with a unit or without."""
    words = (line.removesuffix(" kB").split() for line in _lines(file))
    return {each[0]: figure for each in words if len(each) == 2 and (figure := number(each[1])) is not None}


def _lines(file: Path) -> list[str]:
    return kernel_text.lines(file, _MOST_BYTES)


def _word(file: Path) -> str:
    return (kernel_text.text(file, _MOST_BYTES) or "").split("\n", 1)[0].strip()
