"""`batch.larger`: more samples a step, through the DataLoader, from its next epoch on.

Each update then averages over more samples and an epoch has fewer of them: the learning rate wants to be
looked at (for SGD it is usually raised by the same factor, for Adam by its root, with a warm-up).
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...live_torch.available_memory import figure, free_bytes
from ...live_torch.live_job import Job
from ..device_headroom import step_bytes
from ..registry import Option, Refused, Undo, remedy
from .loader_settings import set_loaders

_MADE: weakref.WeakSet[object] = weakref.WeakSet()  # samplers of larger batches


@remedy(
    "batch.larger",
    treats=("overhead", "underfilled"),
    reach="next_epoch",
    cls="changes-training",
    doc="Load larger batches: what a step costs whatever its size is shared by more samples.",
    targets=("loader.batch_size",),
    options=(Option(name="factor", kind="int", default=2, low=2, high=64, doc="Times the present size."),),
)
def larger(job: Job, options: Mapping[str, object]) -> Undo:
    factor = int(str(options.get("factor", 2)))
    plain: Any = job.torch.utils.data.BatchSampler
    on_cpu = 1024 * (figure(Path("/proc/self/status"), "VmHWM") or 0)  # all that the process has ever held
    needed = (factor - 1) * (step_bytes(job) if job.torch.cuda.is_initialized() else on_cpu)
    free = free_bytes(job.torch, Path("/"))
    if free is not None and needed > free // 2:
        raise Refused(f"{factor} times the batch may need {needed >> 20} MiB more, {free >> 20} MiB are free")

    def settle(loader: Any) -> Mapping[str, object]:
        indices = loader._index_sampler
        if indices in _MADE:
            raise Refused("its batches are larger already")
        if type(indices) is not plain:
            raise Refused("your script has its own batch sampler")
        state = vars(indices)
        size = state["batch_size"]
        if size * factor > len(loader.dataset):
            raise Refused(f"the dataset is smaller than a batch of {factor} times {size}")
        sampler = plain(state["sampler"], size * factor, state["drop_last"])
        _MADE.add(sampler)
        return {"batch_size": size * factor, "batch_sampler": sampler}

    return set_loaders(job, settle)
