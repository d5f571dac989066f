"""Settings of DataLoaders that change from their next epoch on, as if the script had been written so.

torch reads a loader's attributes when it is asked for an iterator; the epoch that runs is never touched. A
loader that is made later gets the same settings if they fit it. The undo puts the old values back.

If one of our workers hangs or dies, the job goes on. (A fork may leave a library's threads behind, or a
container may be short of memory.) The iterator then loads in the training process again, starting with the
batch that did not come. It repeats no item and skips none.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from ...live_torch.live_job import Job
from ...live_torch.loader_epochs import EPOCHS
from ..registry import RefusalCode, Refused, WatchedUndo, fitting

Settle = Callable[[Any], Mapping[str, object]]
"""Attributes to set on a loader, by name; raises Refused where that does not fit."""

PATIENCE_S = 5  # longest wait for one batch; a recipe's workers get all the time that the script gives them
_ABSENT = object()


class LoaderSettings:
    """One remedy's settings on all loaders that they fit.

    Attributes:
        trouble: Why they must be undone after all; None while all is well.
    """

    def __init__(self, job: Job, settle: Settle) -> None:
        self.trouble: str | None = None
        self._job = job
        self._settle = settle
        self._changed: MutableMapping[object, tuple[dict[str, object], dict[str, object]]]
        self._changed = weakref.WeakKeyDictionary()  # by loader: its own settings, and ours

    def begins(self, loader: object) -> None:
        """A loader is about to begin an epoch: the first time, change it."""
        if loader in self._changed or self.trouble or self._job.evaluates:
            return
        try:
            settings = self.settled(loader)
        except Refused:
            return
        state = vars(loader)  # not setattr: torch guards some of these names once a loader is made
        if _starts_workers(settings) and MAKER not in state:
            settings[MAKER] = maker(loader, self._failed, 0 if self._job.planned else PATIENCE_S)
        self._changed[loader] = {name: state.get(name, _ABSENT) for name in settings}, settings
        state.update(settings)

    def settled(self, loader: Any) -> dict[str, object]:
        """The settings for a loader; raises Refused where they do not fit."""
        settings = dict(self._settle(loader))
        if loader.persistent_workers and loader._iterator is not None:
            raise Refused("its workers are persistent: restart the job to change them")
        if _starts_workers(settings) and not getattr(loader, "in_order", True):
            raise Refused("its workers hand over batches in any order")
        return settings

    def undo(self) -> None:
        """All loaders get their own settings from their next epoch on."""
        EPOCHS.leave(self.begins)
        self._give_back()

    def _failed(self, error: Exception) -> None:
        self.trouble = f"loading failed with it: {type(error).__name__}: {error}".partition("\n")[0]
        self._give_back()

    def _give_back(self) -> None:
        """What somebody else has set meanwhile stays."""
        while self._changed:
            loader, (before, settings) = self._changed.popitem()
            state = vars(loader)
            for name, value in before.items():
                if state.get(name, _ABSENT) is not settings[name]:
                    continue
                if value is _ABSENT:
                    del state[name]
                else:
                    state[name] = value
            if settings.get("persistent_workers") and "_iterator" in state:
                state["_iterator"] = None  # its workers end with the epoch that still reads from them


def _starts_workers(settings: Mapping[str, object]) -> bool:
    return bool(settings.get("num_workers", settings.get("prefetch_factor")))


def _shown_by(iterator: object) -> object:
    """The settings of a loader that nobody has seen, as its iterator keeps them: behind a `_`."""
    state = vars(iterator)
    plain = {name.removeprefix("_"): value for name, value in state.items()}
    return SimpleNamespace(**{"prefetch_factor": None, **plain, **state, "_iterator": iterator})


def set_loaders(job: Job, settle: Settle) -> WatchedUndo:
    """Change the loaders of the job from their next epoch on.

    Raises:
        Refused: no loader is known, or the settings fit none of those that are.
    """
    found = job.loaders or [_shown_by(each) for each in [job.iterator] if each is not None]
    if not found:
        raise Refused("no DataLoader has been seen yet", RefusalCode.NOT_MET)
    settings = LoaderSettings(job, settle)
    fitting(found, settings.settled)
    with ExitStack() as undo:  # a user's DataLoader subclass may raise anything
        undo.callback(settings.undo)
        EPOCHS.listen(job.torch, settings.begins)
        for loader in job.loaders:
            settings.begins(loader)
        undo.pop_all()
    return WatchedUndo(settings.undo, lambda: settings.trouble)


MAKER = "_get_iterator"  # the DataLoader's method that makes its iterators


def maker(loader: object, failed: Callable[[Exception], None], patience_s: int) -> Callable[[], object]:
    """Stands for the method of one loader.

    Args:
        failed: Called with what went wrong, once there are no workers; gives the loader its own settings.
        patience_s: Longest wait for one batch; 0: for ever.
    """
    found: Any = weakref.ref(loader)
    torch: Any = sys.modules["torch.utils.data.dataloader"]

    class SpareIterator(torch._MultiProcessingDataLoaderIter):  # type: ignore[misc]
        """Loads by its workers, and once one has failed, without them."""

        def __init__(self, loader: object) -> None:
            self._asked: deque[object] = deque()  # indices of batches that have not been handed over
            self._fetcher: Any = None  # once it loads without workers
            super().__init__(loader)
            self._timeout: int = self._timeout or patience_s
            # Else torch's handler of SIGCHLD raises wherever the training thread is just then.
            torch._utils.signal_handling._remove_worker_pids(id(self))
            self._worker_pids_set = False

        def _reset(self, loader: object, first_iter: bool = False) -> None:
            self._asked.clear()
            super()._reset(loader, first_iter)

        def _next_index(self) -> object:
            index = super()._next_index()
            self._asked.append(index)
            return index

        def _next_data(self) -> object:
            if self._fetcher is None:
                try:
                    batch = super()._next_data()
                    self._asked.popleft()
                    return batch
                except StopIteration:
                    raise
                except Exception as error:  # noqa: BLE001 - a worker ended, hangs, or says what it likes
                    self._leave_workers(error)
            batch = self._fetcher.fetch(self._asked.popleft() if self._asked else next(self._sampler_iter))
            if self._pin_memory:
                batch = torch._utils.pin_memory.pin_memory(batch, self._pin_memory_device)
            return batch

        def _leave_workers(self, error: Exception) -> None:
            for worker in self._workers:
                worker.kill()  # one that hangs would be waited for
            self._shutdown_workers()
            self._fetcher = torch._DatasetKind.create_fetcher(
                self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
            )
            failed(error)

    def make() -> object:
        try:
            return SpareIterator(found())
        except (OSError, RuntimeError, ValueError, AssertionError) as error:
            failed(error)
            return found()._get_iterator()

    return make
