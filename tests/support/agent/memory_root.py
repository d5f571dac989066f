"""A made-up root folder with a memory limit: what the agent reads of the host's memory."""

from pathlib import Path

MIB = 1 << 20


class MemoryRoot:
    """A machine of 8 GiB and, around the job, a memory group of `limit_mib` (cgroup version 2)."""

    def __init__(self, folder: Path, limit_mib: int | None = None) -> None:
        self.folder = folder
        self._group = folder / "sys/fs/cgroup"
        (folder / "proc/self").mkdir(parents=True)
        (folder / "proc/meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
        (folder / "proc/self/status").write_text("Name: python\nVmRSS:\t  102400 kB\n")
        if limit_mib is not None:
            self._group.mkdir(parents=True)
            (self._group / "memory.max").write_text(f"{limit_mib * MIB}\n")
            self.use(0)

    def use(self, mib: int) -> None:
        """So much of the group's limit is taken now."""
        (self._group / "memory.current").write_text(f"{mib * MIB}\n")
