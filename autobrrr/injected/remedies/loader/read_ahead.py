"""Batches that workers made while training went on, handed over by the iterator of a job without workers.

In: an iterator that loads in the training process, and how workers are started. Each batch comes in its turn,
as before: from a worker where that is the same as making it now, else it is made now. The first of an epoch
is made now as well, and compared; so are the 1st, 2nd, 4th, 8th and so on of all. Once anything does not fit,
the iterator is as it was, and goes on with what was read of its sampler.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any, cast

from ...job_code.installed_code import home_of
from ...live_torch.handler_errors import let_through
from ...live_torch.live_job import Job
from ..registry import Refused
from .batch_workers import DECLINED, MOST_IN_A_SET, ROOM_BYTES, BatchTask, Workers
from .dataset_state import DatasetState
from .loader_items import batch_bytes, copied, read_items, refuse_children
from .loader_view import LoaderView
from .sent_batches import exactly

MOST_DECLINED = 3  # more than were taken
TOO_MANY = 3  # epochs that did not fit
MOST_LOOKING = 0.25  # of what making a batch takes, each time
FREE_NS = 100_000
LOOKS = 8  # of which the fastest counts


@dataclass(slots=True)
class LoaderRecord:
    """What came of reading one loader ahead.

    Attributes:
        taken: Batches from workers, over all epochs.
        handed: Batches of the latest epoch that was read ahead from its beginning; None: there was none yet.
        misfits: Epochs that were left; a batch that was another one counts as many.
        why: The last of them was.
        kept: Workers that wait for the next epoch.
    """

    taken: int = 0
    handed: int | None = None
    misfits: int = 0
    why: str | None = None
    kept: Workers | None = None

    def count(self, misfits: int, why: str) -> None:
        """An epoch did not fit."""
        self.misfits += misfits
        self.why = why


class ReadAhead:
    """Stands before the fetcher of one iterator, on the thread that reads it.

    Args:
        begin: Starts the workers, or gives those that are there.
        end: What comes of them once all batches were handed over.
        record: Of the loader.
        workers: How many make them.
        ahead: Batches that are on their way.
        compare: A worker's batch is the one that the job would make.
    """

    def __init__(
        self,
        iterator: object,
        *,
        begin: Callable[[], Workers],
        end: Callable[[Workers], None],
        record: LoaderRecord,
        workers: int,
        ahead: int,
        compare: bool,
    ) -> None:
        state = vars(iterator)
        self._iterator = weakref.ref(iterator)
        self._begin, self._end, self._record = begin, end, record
        self._ahead, self._compare = ahead, compare
        self._fetcher: Any = state["_dataset_fetcher"]
        self._indices = _indices_of(iterator)
        self._workers: Workers | None = None
        self._waiting: deque[tuple[int | None, object]] = deque()  # numbers of those that were asked for
        self._current: int | None = None
        self._taken = self._declined = 0
        self._end_of_sampler: Exception | None = None  # when its turn comes
        self._is_over = False
        self._pid = os.getpid()
        self._reader: int | None = None
        self._making_ns = 0  # a batch, at most
        self._looking_ns: list[int] = []
        state["_dataset_fetcher"] = self  # first: a batch that is being read meanwhile has no number
        state["_next_index"] = self._next_index
        state["_num_workers"] = workers

    @property
    def made_here(self) -> Callable[[object], object]:
        """Makes the batch of an index in the process that calls it."""
        return cast("Callable[[object], object]", self._fetcher.fetch)

    @property
    def dataset(self) -> object:
        """The job's."""
        return self._fetcher.dataset

    @property
    def is_ready(self) -> bool | None:
        """Whether the next batch is there; None: nobody was asked for it."""
        workers, first = self._workers, next(iter(list(self._waiting)), None)
        if workers is None or first is None or first[0] is None:
            return None
        return workers.has(first[0])

    def stop(self) -> None:
        """The iterator is as it was: at once, or with its next batch where another thread reads it."""
        self._is_over = True
        if self._reader == threading.get_ident():
            self._leave()
        elif self._workers is not None:
            self._workers.kill()

    def fetch(self, index: object) -> object:
        """The batch whose index was last asked for."""
        number, batch = self._current, DECLINED
        if self._record.handed is not None:
            self._record.handed += 1
        if number is not None and self._workers is not None:
            try:
                batch = self._workers.take(number)
            except BaseException as error:
                if not self._is_over:
                    self._record.count(1, "a worker has ended, or does not answer")
                self._leave()
                if not isinstance(error, Exception):
                    raise
                let_through(error)
        if batch is DECLINED or not self._is_current():
            self._declined += 1
            if self._declined > self._taken + MOST_DECLINED:
                # What the dataset fills as it is read is filled here: the next epoch may fit.
                self._record.count(1, "something else comes of making a batch, so the job makes them itself")
                self._leave()
            return self._make(index)
        self._taken += 1
        self._record.taken += 1
        if not self._compare or (self._taken > 1 and self._record.taken & (self._record.taken - 1)):
            return batch
        made = self._make(index)
        if not self._are_alike(made, batch):
            self._record.count(TOO_MANY, "a worker made another batch than the job")
            self._leave()
        return made

    def _make(self, index: object) -> object:
        began_ns = perf_counter_ns()
        made = self._fetcher.fetch(index)
        self._making_ns = max(self._making_ns, perf_counter_ns() - began_ns)
        return made

    def _are_alike(self, made: object, batch: object) -> bool:
        """The job's batch and a worker's; what can't be compared is not."""
        try:
            return exactly(made, batch)
        except Exception as error:  # noqa: BLE001  an == of the job's own, or it holds itself
            let_through(error)
            return False

    def _leave(self) -> None:
        """Indices that were read already come first."""
        self._is_over = True
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()
        end, self._end_of_sampler = self._end_of_sampler, None
        self._indices.put_back([index for _, index in self._waiting], end)
        self._waiting.clear()
        iterator = self._iterator()
        if iterator is None or vars(iterator).get("_dataset_fetcher") is not self:
            return
        state = vars(iterator)
        state.pop("_next_index", None)
        state["_dataset_fetcher"] = self._fetcher
        state["_num_workers"] = 0

    def _next_index(self) -> object:
        self._reader = threading.get_ident()
        self._current = None
        self._is_over = self._is_over or os.getpid() != self._pid  # answers are for who has asked
        if self._workers is None and not self._is_over:
            try:
                self._workers = self._begin()
            except Exception as error:  # noqa: BLE001  it loads as before
                self._record.count(TOO_MANY, f"no worker can be started: {error}")
                self._is_over = True
                let_through(error)
        if not self._is_over:
            self._fill()
        if self._is_over:
            self._leave()
            return self._indices.next()
        if not self._waiting:
            workers, self._workers = cast("Workers", self._workers), None
            self._leave()
            self._end(workers)
            return self._indices.next()
        self._current, index = self._waiting.popleft()
        self._fill()
        return index

    def _fill(self) -> None:
        workers = self._workers
        while workers is not None and len(self._waiting) < self._ahead and self._end_of_sampler is None:
            try:
                index = self._indices.next()
            except Exception as error:  # noqa: BLE001
                self._end_of_sampler = _without_ours(error)
                return
            try:
                index = _as_it_is(index)
            except Exception as error:  # noqa: BLE001  Unkept, or what its class raises
                self._waiting.append((None, index))
                self._record.count(TOO_MANY, "its sampler gives what can't be copied")
                self._leave()
                let_through(error)
                return
            self._waiting.append((None, index))
            try:
                self._waiting[-1] = workers.ask(index), index
            except OSError:  # they are gone
                self._leave()
                return

    def _is_current(self) -> bool:
        """Whether what the workers were forked with is what the job has."""
        workers = self._workers
        if workers is None:
            return False
        began_ns = perf_counter_ns()
        try:
            is_current = workers.state.is_set_as_it_was
        except Exception as error:  # noqa: BLE001  an == of the job's own
            let_through(error)
            is_current = False
        self._looking_ns.append(perf_counter_ns() - began_ns)
        if not is_current:
            self._leave()
        elif len(self._looking_ns) == LOOKS:
            if self._making_ns and min(self._looking_ns) > max(FREE_NS, MOST_LOOKING * self._making_ns):
                self._record.count(TOO_MANY, "to see that its dataset is as it was takes too long")
                self._leave()
            self._looking_ns.clear()
        return is_current


def _without_ours(error: Exception) -> Exception:
    """Its traceback from the sampler's first frame on: who keeps an error is in no frame that it keeps."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_globals is globals():
        found = found.tb_next
    return error.with_traceback(found)


def _as_it_is(index: object) -> object:
    """The sampler's, which it may use again for its next one; raises Unkept."""
    if type(index) is list and set(map(type, index)) <= {int}:
        return list(index)
    return copied(index)


class _Indices:
    """All indices of an iterator that were not handed over, however often it is read ahead.

    While some of them wait here, Python's own iterators over them stand in its sampler's place: the job may
    hold those longer than we are there.
    """

    def __init__(self, iterator: object) -> None:
        self._iterator = weakref.ref(iterator)
        self._sampler: Iterator[object] = vars(iterator)["_sampler_iter"]
        self._waiting: Iterator[object] = iter(())  # whoever takes one, here or there, has taken it
        self._error: Exception | None = None  # of the sampler's, or its end, when its turn comes

    def next(self, _: object = None) -> object:
        """Raises what the sampler raises."""
        for index in self._waiting:
            return index
        if self._error is not None:
            error, self._error = self._error, None
            self._stand([])
            try:
                raise error
            finally:
                del error  # its traceback has this frame: no cycle, which only a collection would end
        return next(self._sampler)

    def put_back(self, indices: list[object], end: Exception | None) -> None:
        """These come first.

        Args:
            end: What the sampler has raised after them.
        """
        self._error = end or self._error
        self._stand([*indices, *self._waiting])

    def _stand(self, waiting: list[object]) -> None:
        self._waiting = iter(waiting)
        iterator = self._iterator()
        if iterator is None:
            return
        rest = self._sampler
        if self._error is not None:
            # Not a generator: one that has raised is at its end.
            rest = map(self.next, itertools.repeat(None))
        vars(iterator)["_sampler_iter"] = itertools.chain(self._waiting, rest) if waiting else rest


_INDICES: MutableMapping[object, _Indices] = weakref.WeakKeyDictionary()


def _indices_of(iterator: object) -> _Indices:
    """The same as long as its epoch lasts."""
    if iterator not in _INDICES:
        _INDICES[iterator] = _Indices(iterator)
    return _INDICES[iterator]


def is_plain(iterator: object) -> bool:
    """Whether it is torch's own: others may keep where their sampler stands."""
    kind = type(iterator)
    return (home_of(kind), kind.__name__) == ("torch.utils.data.dataloader", "_SingleProcessDataLoaderIter")


_RECORDS: MutableMapping[object, LoaderRecord] = weakref.WeakKeyDictionary()  # a trial goes on and off


class Readers:
    """All iterators that one remedy has read ahead.

    Args:
        give_back: Has a loader load by itself from now on.
        class_of: What making batches elsewhere does to the numbers.
    """

    def __init__(
        self, job: Job, give_back: Callable[[object], None], class_of: Callable[[LoaderView], str]
    ) -> None:
        self._job = job
        self._give_back = give_back
        self._class_of = class_of
        self._mine: list[LoaderRecord] = []
        self._running: weakref.WeakSet[ReadAhead] = weakref.WeakSet()

    def take_over(self, iterator: object, owner: object, view: LoaderView, *, begins: bool) -> None:
        """Of an epoch that begins, or goes on.

        Args:
            owner: The loader; the iterator where it is not known.
            view: With the workers that it is to have.
        """
        record = _RECORDS.setdefault(owner, LoaderRecord())
        if not any(each is record for each in self._mine):
            self._mine.append(record)
        if isinstance(vars(iterator).get("_dataset_fetcher"), ReadAhead):
            return  # another thread reads it, and has not left the one before
        ahead = view.num_workers * (view.prefetch_factor or 2)
        if begins and record.handed is not None and record.handed <= ahead:
            record.count(1, "its epochs end before workers are of use")
        if record.misfits >= TOO_MANY or not is_plain(iterator):
            self._give_back(owner)
            return
        record.handed = 0 if begins else None
        cls = self._class_of(view)
        itself = weakref.ref(iterator)
        self._running.add(
            ReadAhead(
                iterator,
                begin=lambda: self._begin(itself(), record, view, draws=cls == "stream"),
                end=partial(self._end, record, is_kept=view.persistent_workers),
                record=record,
                workers=view.num_workers,
                ahead=ahead,
                compare=cls != "stream",
            )
        )

    def trouble(self) -> str | None:
        """Why no loader is read ahead any more; None while one is."""
        if not self._mine or any(each.misfits < TOO_MANY for each in self._mine):
            return None
        return self._mine[-1].why

    def leave(self) -> None:
        """All iterators are as they were, and no worker stays."""
        for each in list(self._running):
            each.stop()
        for record in self._mine:
            kept, record.kept = record.kept, None
            if kept is not None:
                kept.close()

    def _begin(self, iterator: object, record: LoaderRecord, view: LoaderView, *, draws: bool) -> Workers:
        kept, record.kept = record.kept, None
        if kept is not None:
            if view.persistent_workers and kept.is_idle and kept.state.is_as_it_was:
                return kept
            kept.close()
        refuse_children()
        state = DatasetState(view.dataset, view.collate)
        held = state.held
        if held.handles or held.locks or held.sources or held.random or held.unseen:
            raise Refused("the dataset has come to hold what workers can't share")
        known: Any = iterator
        task = BatchTask(
            fetch=known._dataset_fetcher.made_here,
            state=state,
            room_bytes=4 * batch_bytes(read_items(self._job, view), view) + ROOM_BYTES,
            draws=draws,
            # Those that come again within an epoch draw on, and not what others have drawn.
            seed=known._base_seed + MOST_IN_A_SET * known._num_yielded,
        )
        return Workers(task, view.num_workers, view.prefetch_factor or 2)

    @staticmethod
    def _end(record: LoaderRecord, workers: Workers, *, is_kept: bool) -> None:
        if is_kept and workers.is_idle:
            record.kept = workers
        else:
            workers.close()
