"""What a remedy takes of the memory that the parameters lie in, and whether that is free.

In: the job, and what its allocator has counted. A job that has most of its device's or its machine's memory
would run out of it inside a step of its own; so a remedy that takes some is refused where it is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from ..live_torch.available_memory import available_bytes
from ..live_torch.live_job import Job
from ..live_torch.torch_types import Tensor

MARGIN = 1.2  # blocks that are free in the allocator are not all of the size that is wanted


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


def why_no_room(job: Job, need: int) -> str | None:
    """Why so many bytes must not be taken of the fullest device with parameters; None where they may."""
    devices = {str(each.device) for each in _parameters(job) if _on_cuda(each)}
    cuda, whose = job.torch.cuda, "the device's memory" if devices else "memory"
    left = [
        int(cuda.mem_get_info(each)[0]) + int(cuda.memory_reserved(each)) - int(cuda.memory_allocated(each))
        for each in devices
    ]
    free = min(left) if left else available_bytes(job.torch, Path("/"))
    if free is None or need * MARGIN <= free:
        return None
    return f"it takes about {int(need * MARGIN) >> 20} MiB of {whose}, {free >> 20} MiB are free"


def _parameters(job: Job) -> list[Tensor]:
    found = (each for root in job.roots for each in root.parameters())  # type: ignore[attr-defined]
    return list({id(each): cast(Tensor, each) for each in found}.values())


def _on_cuda(tensor: Tensor) -> bool:
    return str(tensor.device).startswith("cuda")
