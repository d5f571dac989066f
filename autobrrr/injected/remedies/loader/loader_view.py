"""What the loader remedies see of a DataLoader, or of the iterator that stands for it in mid-epoch."""

from __future__ import annotations

from dataclasses import dataclass

from ...live_torch.live_job import Job
from ..registry import RefusalCode, Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderView:
    """One loader, as it is set; what a remedy may set bears the name that it has there."""

    dataset: object
    indices: object  # what yields the indices of a batch (or of an item, without automatic collation)
    map_style: bool
    collates: bool
    collate: object  # makes a batch of items
    starts_worker: object  # the job's own function that each new worker calls
    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    began_persistent: bool  # its workers are there already, and for the whole run
    pin_memory: bool

    @property
    def batch_size(self) -> int | None:
        """Items of a batch, where the batch sampler says so."""
        found = getattr(self.indices, "batch_size", None)
        return found if type(found) is int else None


def of_loader(loader: object) -> LoaderView:
    """A DataLoader."""
    return _view(loader, "", began=vars(loader).get("_iterator") is not None)


def of_iterator(iterator: object) -> LoaderView:
    """The iterator of an epoch that has begun."""
    return _view(iterator, "_", began=True)


def _view(thing: object, mark: str, *, began: bool) -> LoaderView:
    """Of a loader or its iterator, which keeps the loader's settings under a mark."""
    state = vars(thing)
    persistent = bool(state.get(f"{mark}persistent_workers"))
    return LoaderView(
        dataset=state[f"{mark}dataset"],
        indices=thing._index_sampler,  # type: ignore[attr-defined]
        map_style=state["_dataset_kind"] == 0,
        collates=bool(thing._auto_collation),  # type: ignore[attr-defined]
        collate=state.get(f"{mark}collate_fn"),
        starts_worker=state.get(f"{mark}worker_init_fn"),
        num_workers=int(state[f"{mark}num_workers"]),
        prefetch_factor=state.get(f"{mark}prefetch_factor"),
        persistent_workers=persistent,
        began_persistent=persistent and began,
        pin_memory=bool(state.get(f"{mark}pin_memory")),
    )


def views(job: Job) -> list[LoaderView]:
    """The loaders of the job, as far as they are known: themselves, else the running iterator.

    Raises:
        Refused: none has been seen.
    """
    found = [of_loader(loader) for loader in job.loaders]
    iterator = job.iterator
    if not found and iterator is not None:
        found = [of_iterator(iterator)]
    if not found:
        raise Refused("no DataLoader has been seen yet", RefusalCode.NOT_MET)
    return found
