"""The DataLoader as the training loop asks it for batches.

In: calls of the iterator's `__next__` while it is patched, and of the loader's `__iter__`. Out: waiting time
for the phase clock, the batch size, and the job's iterator, to look whether its prefetch queue is empty and
whether an epoch begins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns

from ..live_torch.job_signals import Ours
from ..live_torch.live_job import Job
from . import batch_shapes
from .phase_clock import DATA_WAIT, PhaseClock


class LoaderWatch:
    """The loader iterator that training uses."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.workers: int | None = None
        self.prefetch: int | None = None

    def found(self, iterator: object | None) -> None:
        """This is the iterator that training reads: seen when it was made or asked, or on the stack."""
        if iterator is not None and iterator is not self._job.iterator:
            self._job.saw_iterator(iterator)
            self.workers = getattr(iterator, "_num_workers", None)
            self.prefetch = getattr(iterator, "_prefetch_factor", None)

    def is_unknown(self) -> bool:
        """Whether no iterator of training was seen yet, or it has ended with its epoch."""
        return self._job.iterator is None

    def took(self, batch: object) -> None:
        """This batch has come from a loader."""
        self._job.batch_bytes = batch_shapes.byte_count(batch)

    def begins_epoch(self, loader: object) -> bool:
        """Training is about to read a loader from its beginning; False: another one, in mid-epoch.

        Evaluation in mid-epoch reads other data while the iterator of training waits.
        """
        if self._job.evaluates:
            return False
        self._job.saw_loader(loader)
        iterator = self._job.iterator
        return iterator is None or vars(iterator).get("_dataset") is vars(loader).get("dataset")

    def worker_pids(self) -> list[int]:
        """Processes that load for the iterator."""
        workers = getattr(self._job.iterator, "_workers", None)
        found = [getattr(getattr(each, "_popen", None), "pid", None) for each in list(workers or ())]
        return [pid for pid in found if type(pid) is int]

    def queue_empty(self) -> bool | None:
        """Whether the next batch is not there yet; None: no workers, or it can't be seen.

        Takes no lock of the loader's: a worker may be forked at this very moment.
        """
        iterator = self._job.iterator
        if iterator is None or not self.workers:
            return None
        try:
            tasks = vars(iterator)["_task_info"]
            expected = vars(iterator)["_rcvd_idx"]
            if len(tasks.get(expected, ())) == 2:  # arrived out of order, and kept
                return False
            queue = vars(iterator)["_data_queue"]
            waiting = getattr(queue, "queue", None)  # queue.Queue of the pinning thread
            return not queue._reader.poll(0) if waiting is None else len(waiting) == 0
        except (AttributeError, OSError, ValueError, KeyError, TypeError, RuntimeError):
            return None  # shut down meanwhile, or another torch


def make_next(
    original: Callable[..., object], phases: PhaseClock, watch: LoaderWatch, ours: Ours
) -> Callable[..., object]:
    """`_BaseDataLoaderIter.__next__`, timed."""

    @functools.wraps(original)
    def __next__(self: object) -> object:
        if not phases.hears:
            return original(self)
        known = phases.samples >= 0  # before: transforms that are modules show one sample, not the batch
        with ours:
            watch.found(self)
            phases.aside_enter(DATA_WAIT, perf_counter_ns())
        try:
            batch = original(self)
        finally:
            with ours:
                phases.aside_exit(DATA_WAIT, perf_counter_ns())
        with ours:
            if not known:
                phases.samples = batch_shapes.batch_size(batch)
            phases.tokens_loaded(batch_shapes.token_count(batch))
            phases.texts.extend(batch_shapes.texts_of(batch))
            watch.took(batch)
        return batch

    return __next__
