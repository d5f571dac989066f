"""`batch.larger`: more samples a step, through the DataLoader, from its next epoch on.

Each update then averages over more samples and an epoch has fewer of them: the learning rate wants to be
looked at (for SGD it is usually raised by the same factor, for Adam by its root, with a warm-up).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ...live_torch.available_memory import available_bytes, figure
from ...live_torch.live_job import Job
from ..registry import Option, Refused, Undo, remedy
from .loader_switch import switch_loaders
from .loader_view import LoaderView
from .loader_workers import refuse_large


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
    plain: type = job.torch.utils.data.BatchSampler
    make: Callable[[object, int, bool], object] = plain
    needed, free = extra_bytes(job, factor), free_bytes(job)
    if free is not None and needed is not None and needed > free:
        raise Refused(f"{factor} times the batch may need {needed >> 20} MiB more, {free >> 20} MiB are free")

    def settle(view: LoaderView) -> Mapping[str, object]:
        if type(view.indices) is not plain:
            raise Refused("its batches are made by a sampler of the job's own")
        if view.began_persistent:
            raise Refused("its workers are there for the whole run: it takes a new start")
        size = view.batch_size
        if size is None or size * factor > len(view.dataset):  # type: ignore[arg-type]
            raise Refused(f"the dataset is smaller than a batch of {factor} times {size}")
        state = vars(view.indices)
        larger_sampler = make(state["sampler"], size * factor, state["drop_last"])
        if view.num_workers:
            ahead = view.num_workers * (view.prefetch_factor or 2)
            refuse_large(job, replace(view, indices=larger_sampler), ahead)
        return {"batch_size": size * factor, "batch_sampler": larger_sampler}

    return switch_loaders(job, "batch.larger", settle)


def extra_bytes(job: Job, factor: int, root: Path = Path("/")) -> int | None:
    """At most what a larger batch needs more: as if all that a step adds to memory were the batch's.

    On a GPU the peak of a step over what stays between steps; on a CPU all that the process has ever held.
    """
    cuda = job.torch.cuda
    if cuda.is_available() and cuda.is_initialized():
        return int((factor - 1) * max(0, cuda.max_memory_allocated() - cuda.memory_allocated()))
    most = figure(root / "proc/self/status", "VmHWM")
    return None if most is None else (factor - 1) * most * 1024


def free_bytes(job: Job, root: Path = Path("/")) -> int | None:
    """What may be taken; None where it can't be seen."""
    found = available_bytes(job.torch, root)
    return None if found is None else found * 3 // 4
