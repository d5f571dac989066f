"""What the loader remedies see of a DataLoader, or of the iterator that stands for it in mid-epoch."""

from __future__ import annotations

from dataclasses import dataclass

from ...live_torch.live_job import Job
from ..registry import RefusalCode, Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderView:
    """One loader, as it is set."""

    dataset: object
    indices: object  # yields the indices of a batch (or of an item, without automatic collation)
    map_style: bool
    in_order: bool
    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory: bool
    began: bool  # an iterator is there


def view_of(thing: object) -> LoaderView:
    """Of a loader, or of its iterator, which keeps the loader's settings behind a `_`."""
    state = vars(thing)
    mark = "" if "num_workers" in state else "_"
    return LoaderView(
        dataset=state[f"{mark}dataset"],
        indices=thing._index_sampler,  # type: ignore[attr-defined]
        map_style=state["_dataset_kind"] == 0,
        in_order=state.get(f"{mark}in_order", True) is True,
        num_workers=state[f"{mark}num_workers"],
        prefetch_factor=state.get(f"{mark}prefetch_factor"),
        persistent_workers=bool(state.get(f"{mark}persistent_workers")),
        pin_memory=bool(state.get(f"{mark}pin_memory")),
        began=bool(mark) or state.get("_iterator") is not None,
    )


def views(job: Job) -> list[LoaderView]:
    """The loaders of the job, as far as they are known: themselves, else the running iterator.

    Raises:
        Refused: none has been seen.
    """
    found = job.loaders or ([] if job.iterator is None else [job.iterator])
    if not found:
        raise Refused("no DataLoader has been seen yet", RefusalCode.NOT_MET)
    return [view_of(each) for each in found]
