"""`loader.cache`: the items of a small dataset stay in memory after the first epoch.

Only for datasets whose items were read twice and came out the same without random numbers, loaded in the
training process, and collated by copying. Kept are copies, for a dataset may give one memory again and again.
What it holds is looked at when an epoch begins; where it is otherwise by then, all is read anew. The first
hit of each epoch and one in sixty-four is read again and compared: a dataset that turns out to change is read
as before from then on. Files that change, and what changes within an epoch, are found by that alone: so its
class is `stream`.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path

from ...live_torch.available_memory import available_bytes
from ...live_torch.live_job import Job
from ..registry import Option, Refused, Undo, remedy
from .dataset_state import DatasetState
from .loader_items import COPYING, Unkept, collate_name, copied, read_items, refuse_unseen, size_bytes
from .loader_switch import switch_loaders
from .loader_view import LoaderView, of_iterator
from .sent_batches import exactly

CHECK_EVERY = 64
OVERHEAD = 1.2


class Cached:
    """Stands before a dataset, and keeps what it has read."""

    def __init__(self, dataset: object, most_bytes: int) -> None:
        self.dataset = dataset
        self._most_bytes = most_bytes
        self._bytes = 0
        self._items: dict[int, object] = {}
        self._hits = 0
        self._begins = False
        self._state: DatasetState | None = None
        self.broken = False

    def epoch_begins(self) -> None:
        """What the job sets on a dataset, it sets between two epochs: look at it and at the next hit."""
        self._begins = True
        if self.broken or (self._state is not None and self._state.is_as_it_was):
            return
        self._forget()
        try:
            self._state = DatasetState(self.dataset)
            self.broken = not self._state.is_whole
        except Refused:
            self.broken = True

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: object) -> object:
        if self.broken or type(index) is not int:
            return self.dataset[index]  # type: ignore[index]
        if index not in self._items:
            return self._read(index)
        self._hits += 1
        if self._begins or self._hits % CHECK_EVERY == 0:
            self._begins = False
            fresh = self.dataset[index]  # type: ignore[index]
            if not exactly(fresh, self._items[index]):
                self.broken = True
                self._forget()
            return fresh
        return self._items[index]

    def _read(self, index: int) -> object:
        item = self.dataset[index]  # type: ignore[index]
        size = size_bytes(item)
        if self._bytes + size <= self._most_bytes:
            try:
                self._items[index] = copied(item)
                self._bytes += size
            except Unkept:
                self.broken = True
                self._forget()
        return item

    def _forget(self) -> None:
        self._items.clear()
        self._bytes = 0


@remedy(
    "loader.cache",
    treats=("input",),
    reach="next_epoch",
    cls="stream",
    doc="Keep the items of a small dataset in memory after they were read once.",
    targets=("loader.dataset", "loader.num_workers"),
    options=(
        Option(name="most_mb", kind="int", default=1024, low=1, high=1 << 20, doc="Megabytes it may take."),
    ),
)
def cache(job: Job, options: Mapping[str, object]) -> Undo:
    most_bytes = int(str(options.get("most_mb", 1024))) << 20
    caches: list[tuple[weakref.ref[object], Cached]] = []
    replaced: list[weakref.ref[object]] = []

    def settle(view: LoaderView) -> Mapping[str, object]:
        _check(job, view, most_bytes)
        return {}

    def take_over(iterator: object, _: object = None) -> None:
        fetcher = vars(iterator).get("_dataset_fetcher")
        dataset = getattr(fetcher, "dataset", None)
        if fetcher is None:
            return
        if not any(ref() is dataset for ref, _ in caches):
            try:
                _check(job, of_iterator(iterator), most_bytes)
            except Refused:
                return
            caches.append((weakref.ref(dataset), Cached(dataset, most_bytes)))
        cached = next(cached for ref, cached in caches if ref() is dataset)
        cached.epoch_begins()
        fetcher.dataset = cached
        replaced.append(weakref.ref(fetcher))

    undo_switch = switch_loaders(job, "loader.cache", settle, after=take_over)
    if job.iterator is not None:
        take_over(job.iterator)

    def undo() -> None:
        undo_switch()
        while replaced:
            fetcher = replaced.pop()()
            if fetcher is not None and isinstance(fetcher.dataset, Cached):  # type: ignore[attr-defined]
                fetcher.dataset = fetcher.dataset.dataset  # type: ignore[attr-defined]
        caches.clear()

    return undo


def _check(job: Job, view: LoaderView, most_bytes: int) -> None:
    """Raises Refused where the items of a loader can't be kept."""
    if isinstance(view.dataset, Cached):
        raise Refused("its items are kept already")
    if not view.map_style:
        raise Refused("an iterable dataset has no items to look up")
    if view.num_workers:
        raise Refused("items would be kept in the workers, each of them for itself")
    if not view.collates or collate_name(view.collate) not in COPYING:
        raise Refused("its batches may hold the items themselves, which training could change")
    if hasattr(view.dataset, "__getitems__"):
        raise Refused("the dataset reads whole batches at a time")
    items = read_items(job, view)
    refuse_unseen(items)
    if not items.is_whole:
        raise Refused("the dataset holds what may change unseen")
    if items.random:
        raise Refused("the dataset draws random numbers for its items")
    if items.writes:
        raise Refused(f"the dataset's {items.writes[0]} writes files, which a kept item would not do")
    if items.counted:
        raise Refused("the dataset keeps count of what is read, and kept items would not be read")
    needed = int(items.length * items.bytes_each * OVERHEAD)
    free_bytes = available_bytes(job.torch, Path("/"))
    limit = most_bytes if free_bytes is None else min(most_bytes, free_bytes // 4)
    if needed > limit:
        raise Refused(f"the items take {needed >> 20} MiB, {limit >> 20} MiB may be taken")
