"""How much memory a trial takes, and how much there is.

In: its processes, limits of this machine. Out: bytes by resource, None where a resource can't be read or
has no limit. Memory is what would not be there without the trial: anonymous and shared pages, at their peak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autobrrr.injected.live_torch.available_memory import host_limits
from autobrrr.machine.kernel_text import number
from autobrrr.machine.nvml_calls import NvmlCalls, load_nvml
from autobrrr.records import JobFacts

CONTEXT_BYTES = 600 << 20  # of a GPU, that the driver holds for a process beside the allocator


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """By resource: memory of the machine, of the GPU, addresses of one process."""

    memory: int | None = None
    gpu: int | None = None
    addresses: int | None = None

    @property
    def telling(self) -> int | None:
        """Of the GPU where there is one, else of the machine."""
        return self.memory if self.gpu is None else self.gpu


@dataclass(slots=True, kw_only=True)
class Free:
    """What a trial could take. `facts` of the job say whether it is on a GPU, once they are known."""

    environment: Mapping[str, str]
    root: Path = Path("/")
    facts: JobFacts | None = None
    _calls: NvmlCalls | None = None

    def now(self) -> Bytes:
        gpu = None
        if self.facts is not None and self.facts.on_cuda:
            if self._calls is None and (module := load_nvml()) is not None:
                self._calls = NvmlCalls(module)
            if self._calls is not None:
                gpu = gpu_free_bytes(self._calls, self.environment, self.facts.world_size or 1)
        addresses = _address_limit(self.root / "proc/self/limits")
        return Bytes(memory=available_bytes(self.root), gpu=gpu, addresses=addresses)


def taken(pids: Iterable[int], reserved: int | None = None, proc: Path = Path("/proc")) -> Bytes:
    """What these processes have taken at most. Those that are gone count nothing.

    Args:
        reserved: By the allocator of torch, of a GPU; None without one.
    """
    memory: int | None = None
    addresses: int | None = None
    for pid in pids:
        status = _figures(proc / str(pid) / "status")
        shares = _figures(proc / str(pid) / "smaps_rollup")
        if "VmPeak" not in status or "Pss_Anon" not in shares:
            continue
        own = shares["Pss_Anon"] + shares.get("Pss_Shmem", 0)
        memory = (memory or 0) + own + max(0, status["VmHWM"] - status["VmRSS"])
        addresses = max(addresses or 0, status["VmPeak"])
    return Bytes(
        memory=memory, gpu=None if reserved is None else reserved + CONTEXT_BYTES, addresses=addresses
    )


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory that could be taken now, also by the limits of the groups that we are in; None: unreadable."""
    found = _figures(root / "proc/meminfo").get("MemAvailable")
    groups = [limit.left() for limit in host_limits(root) if limit.of_group]
    known = [each for each in (found, *groups) if each is not None]
    return min(known, default=None)


def gpu_free_bytes(calls: NvmlCalls, env: Mapping[str, str], ranks: int = 1) -> int | None:
    """What the fullest of the GPUs has left that these ranks would use; None where it can't be told.

    A number in the environment is one of CUDA's. That is the driver's where the environment says so, or where
    all devices are alike; elsewhere it may be any device, and the fullest of all counts.
    """
    visible = env.get("CUDA_VISIBLE_DEVICES")
    names = [str(i) for i in range(ranks)] if not visible else visible.split(",")[:ranks]
    by_name: dict[str, object] = {}
    for name in (each.strip() for each in names):
        index = number(name)
        if index is None or index < 0:
            by_name[name] = calls.ask("nvmlDeviceGetHandleByUUID", name)
        elif env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or _all_alike(calls):
            by_name[name] = calls.ask("nvmlDeviceGetHandleByIndex", index)
        else:
            by_name |= {str(index): handle for index, handle in enumerate(_devices(calls))}
    left = [handle and calls.ask("nvmlDeviceGetMemoryInfo", handle) for handle in by_name.values()]
    known = [int(each.free) for each in left if each is not None]  # type: ignore[attr-defined]
    return min(known) if known and len(known) == len(left) else None


def _devices(calls: NvmlCalls) -> list[object]:
    return [
        calls.ask("nvmlDeviceGetHandleByIndex", index)
        for index in range(calls.whole("nvmlDeviceGetCount") or 0)
    ]


def _all_alike(calls: NvmlCalls) -> bool:
    return len({str(calls.ask("nvmlDeviceGetName", handle)) for handle in _devices(calls)}) <= 1


def _address_limit(file: Path) -> int | None:
    try:
        found = re.search(r"^Max address space\s+(\d+)", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found.group(1))


def _figures(file: Path) -> dict[str, int]:
    """Lines such as `VmPeak:  123 kB`, in bytes."""
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return {}
    return {name: int(count) * 1024 for name, count in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
