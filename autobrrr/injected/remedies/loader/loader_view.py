"""What the loader remedies see of a DataLoader, or of the iterator that stands for it in mid-epoch."""

from __future__ import annotations

from dataclasses import dataclass

from ...live_torch.live_job import Job
from ..registry import RefusalCode, Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderView:
    """One loader, as it is set."""

    dataset: object
    indices: object  # what yields the indices of a batch (or of an item, without automatic collation)
    map_style: bool
    collates: bool
    collate: object  # makes a batch of items
    workers: int
    prefetch: int | None
    persistent: bool
    began_persistent: bool  # its workers are there already, and for the whole run
    pinned: bool

    @property
    def batch_size(self) -> int | None:
        """Items of a batch, where the batch sampler says so."""
        found = getattr(self.indices, "batch_size", None)
        return found if type(found) is int else None


def of_loader(loader: object) -> LoaderView:
    """A DataLoader."""
    state = vars(loader)
    persistent = state.get("persistent_workers") is True
    return LoaderView(
        dataset=state["dataset"],
        indices=loader._index_sampler,  # type: ignore[attr-defined]
        map_style=state["_dataset_kind"] == 0,
        collates=bool(loader._auto_collation),  # type: ignore[attr-defined]
        collate=state.get("collate_fn"),
        workers=int(state["num_workers"]),
        prefetch=state.get("prefetch_factor"),
        persistent=persistent,
        began_persistent=persistent and state.get("_iterator") is not None,
        pinned=bool(state.get("pin_memory")),
    )


def of_iterator(iterator: object) -> LoaderView:
    """The iterator of an epoch that has begun."""
    state = vars(iterator)
    persistent = bool(state.get("_persistent_workers"))
    return LoaderView(
        dataset=state["_dataset"],
        indices=state["_index_sampler"],
        map_style=state["_dataset_kind"] == 0,
        collates=bool(state["_auto_collation"]),
        collate=state.get("_collate_fn"),
        workers=int(state["_num_workers"]),
        prefetch=state.get("_prefetch_factor"),
        persistent=persistent,
        began_persistent=persistent,
        pinned=bool(state.get("_pin_memory")),
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
