"""torch's iterator with workers, able to load the rest of its epoch without them.

A worker of ours that hangs or dies must not end the job, as it would with the script's own: a library whose
threads a fork leaves behind, a container short of memory. The iterator then loads where it was loaded before,
in the training process, from the batch on that did not come. No item is trained twice or left out.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

MAKER = "_get_iterator"  # the DataLoader's method that makes its iterators
Failed = Callable[[Exception], None]


def maker(loader: object, failed: Failed, patience_s: int) -> Callable[[], object]:
    """Stands for the method of one loader.

    Args:
        failed: Called with what went wrong, once an iterator has given up its workers.
        patience_s: Longest wait for one batch; 0: for ever.
    """
    found = weakref.ref(loader)
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
                except Exception as error:
                    if isinstance(error, StopIteration):
                        raise
                    self._leave_workers(error)
                else:
                    self._asked.popleft()
                    return batch
            index = self._asked.popleft() if self._asked else next(self._sampler_iter)
            batch = self._fetcher.fetch(index)
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
        return SpareIterator(found())

    return make
