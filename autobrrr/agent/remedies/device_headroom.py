"""What a remedy takes of the host's and the device's memory, whether that is free, and stays so.

In: the job, what its allocator has counted, the limits on the host's memory. A job that has most of its
device's memory would run out of it inside a step of its own, and one that has most of its host's is killed by
the kernel. So a remedy is refused where too little is left, and the newest reverted where memory runs short.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import cast

from ..live_torch.available_memory import MemoryLimit, figure, host_limits
from ..live_torch.live_job import Job
from ..live_torch.torch_types import Tensor
from .registry import Remedy

MARGIN = 1.2  # blocks that are free in the allocator are not all of the size that is wanted
FLOOR = 0.1  # so much of each limit on the host's memory stays free
LOOK_MS, RARE_LOOK_MS = 50, 250  # 0.1 to 0.2 ms of CPU a look, half of it without the GIL
PLENTY_BYTES = 4 << 30  # so much can't be half taken between two rare looks: pages come at some GiB a second
SETTLED_S = 2.0  # after a revert: what the remedy took may be given back late
ANOTHER_S = 1.0  # after a revert, before an older remedy goes too


def parameter_bytes(job: Job) -> int:
    """Of all trained parameters, or those of them on CUDA devices: what one more set of gradients takes."""
    found = _parameters(job)
    placed = list(filter(_on_cuda, found)) or found
    return sum(each.numel() * each.element_size() for each in placed if each.requires_grad)


def step_bytes(job: Job) -> int:
    """What a step takes at its peak beside what stays between steps: activations and gradients.

    The peak is that of the process so far; what it has given back to the device since, no step has needed.
    On a CPU nobody has counted it: 0.
    """
    cuda = job.torch.cuda
    peak = min(int(cuda.max_memory_allocated()), int(cuda.memory_reserved()))
    return max(0, peak - int(cuda.memory_allocated()))


def one_more_step(job: Job) -> int:
    """A forward and backward beside the job's own state, and a second set of gradients to compare."""
    return step_bytes(job) + 2 * parameter_bytes(job)


def one_more_pool(job: Job) -> int:
    """The same in memory of its own, which nothing of the job can use meanwhile."""
    return 2 * step_bytes(job) + 3 * parameter_bytes(job)


def why_no_room(job: Job, remedy: Remedy, root: Path, *, planned: bool = False) -> str | None:
    """Why there is no room for a remedy on the host or the fullest device with parameters; None: there is.

    Args:
        root: Where `proc` and `sys` are; "/" but in tests.
        planned: A recipe has it on for the whole run, unwatched: what it needs must be free, and no more.
    """
    device_need = 0 if remedy.takes is None else int(remedy.takes(job) * MARGIN)
    need = 0 if remedy.host_takes is None else remedy.host_takes(job)
    left = min((_left_of(job.torch.cuda, each) for each in _devices(job)), default=None)
    if left is None:
        need += device_need
    elif device_need > left:
        return f"it takes {device_need >> 20} MiB of the device's memory, {left >> 20} MiB are free"
    for limit in host_limits(root):
        free, total = limit.left(), limit.total_bytes
        if free is None:
            continue
        if free < FLOOR * total and not planned:
            return f"{free >> 20} of {total >> 20} MiB of memory are free; {100 * FLOOR:.0f} % must be"
        if need > (free if planned else free // 2):  # with less than half left `MemoryWatch` reverts it
            half = "" if planned else "; half must stay free"
            return f"it takes {need >> 20} MiB of memory, {free >> 20} MiB are free{half}"
    return None


def reserved_bytes(job: Job) -> int | None:
    """What torch's allocator holds of the fullest device with parameters; None without one."""
    return max((int(job.torch.cuda.memory_reserved(each)) for each in _devices(job)), default=None)


def _left_of(cuda: ModuleType, device: str) -> int:
    free, kept = int(cuda.mem_get_info(device)[0]), int(cuda.memory_reserved(device))
    return free + kept - int(cuda.memory_allocated(device))


def _devices(job: Job) -> set[str]:
    return {str(each.device) for each in _parameters(job) if _on_cuda(each)}


def _parameters(job: Job) -> list[Tensor]:
    found = (each for root in job.roots for each in root.parameters())  # type: ignore[attr-defined]
    return list({id(each): cast(Tensor, each) for each in found}.values())


def _on_cuda(tensor: Tensor) -> bool:
    return str(tensor.device).startswith("cuda")


class MemoryWatch:
    """The memory of one job. `look` is called on the agent's thread, all else on the training thread."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._clock = clock
        # Each with the least that the job alone left of it: between steps, as remedies go on, it leaves most.
        self._limits: list[tuple[MemoryLimit, int]] = []
        self._due_s = self._settled_s = self._patient_until_s = 0.0
        self.every_ms = RARE_LOOK_MS
        self.trouble: str | None = None
        self.peak_bytes: int | None = None  # of the job since `begin`

    def begin(self) -> None:
        """A remedy is about to go on."""
        self._due_s = 0.0
        self.look(on=False)
        self.peak_bytes, self._due_s = None, 0.0

    def reverted(self) -> None:
        """A remedy is off: what it took is given back soon."""
        now_s = self._clock()
        self._settled_s = now_s + SETTLED_S
        if self.trouble is not None:
            self.trouble, self._patient_until_s = None, now_s + ANOTHER_S

    def look(self, *, on: bool) -> bool:
        """Look where it is time; whether a remedy must be reverted now.

        Args:
            on: A remedy of the session is on.
        """
        now_s = self._clock()
        if now_s < self._due_s:
            return False
        if not self._limits:
            self._limits = [(limit, limit.total_bytes) for limit in host_limits(self.root)]
        found = [(limit, before, now) for limit, before in self._limits if (now := limit.left()) is not None]
        is_plenty = all(now > PLENTY_BYTES for _, _, now in found)
        self.every_ms = LOOK_MS if on and not is_plenty else RARE_LOOK_MS
        self._due_s = now_s + self.every_ms / 1000
        if not on:
            self.trouble = None
            if now_s >= self._settled_s:
                self._limits = [(limit, min(before, now)) for limit, before, now in found]
            return False
        used = [limit.total_bytes - now for limit, _, now in found if limit.of_group]
        if not used:
            used = [1024 * (figure(self.root / "proc/self/status", "VmRSS") or 0)]
        self.peak_bytes = max(min(used), self.peak_bytes or 0)
        for _, before, now in found:
            if now < before // 2 and now_s >= self._patient_until_s:
                free = f"{before >> 20} MiB were free before it was on, {now >> 20} MiB with it"
                self.trouble = f"memory ran short: {free}"
        return self.trouble is not None
