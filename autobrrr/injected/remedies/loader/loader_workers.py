"""Loader processes: how many, how far ahead, for how long; and page-locked batches.

A loader without workers gets ours (`read_ahead.py`): the job takes from them what it would have made itself.
One that has workers of the job's own gets another number of those. Where random numbers are drawn for an item
or a batch, or a sampler of unknown make draws while it yields, they come in another stream.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import weakref
from collections.abc import Mapping, MutableMapping
from functools import partial
from pathlib import Path
from types import FunctionType

from ...job_code.installed_code import home_of
from ...job_code.name_lookups import names_in
from ...live_torch.available_memory import available_bytes
from ...live_torch.live_job import Job
from ...wire.plain_number import whole_number
from ..registry import CLASSES, Option, Refused, Undo, WatchedUndo, check_class, remedy
from .batch_workers import MOST_IN_A_SET
from .dataset_state import DatasetState
from .loader_items import Items, batch_bytes, read_items, refuse_children, refuse_unseen
from .loader_switch import DESK, WITHOUT_WORKERS, Settle, switch_loaders
from .loader_view import LoaderView, of_iterator, views
from .read_ahead import Readers, is_plain

KNOWN_SAMPLERS = ("torch.utils.data.sampler", "torch.utils.data.distributed")
SHARED_MEMORY = "/dev/shm"
MOST_WORKERS = 8  # by default
_SEEDING = frozenset((
    "torch", "np", "numpy", "random", "seed", "manual_seed", "initial_seed", "set_seed", "set_num_threads",
))  # fmt: skip


def _class_for(job: Job) -> str:
    """The widest on the loaders that can be judged.

    Raises:
        Refused: none can.
    """
    classes, why = [], None
    for view in views(job):
        try:
            classes.append(_class_of(job, view))
        except Refused as refused:
            why = why or refused
    if why is not None and not classes:
        raise why
    return max(classes, key=CLASSES.index)


def _class_of(job: Job, view: LoaderView) -> str:
    """On one loader."""
    items = read_items(job, view)
    if items.random or not _draws_first(view.indices):
        return "stream"
    # A worker computes on one thread: sums of many numbers may come out otherwise.
    return "bitwise" if job.torch.get_num_threads() == 1 or view.num_workers else "rounding"


def _where_allowed(job: Job, settle: Settle) -> Settle:
    """Also loaders that come later stay as they are where it would change more there than it may."""
    allowed = job.allowed

    def settle_where_allowed(view: LoaderView) -> Mapping[str, object]:
        settings = settle(view)
        if allowed is not None:
            check_class(_class_of(job, view), allowed)
        return settings

    return settle_where_allowed


def _draws_first(indices: object) -> bool:
    """A sampler of torch's own: it takes all its random numbers before its first index.

    A RandomSampler draws between and after its indices, too: that matters where its generator is the job's.
    """
    if home_of(type(indices)) not in KNOWN_SAMPLERS:
        return False
    if type(indices).__name__ == "RandomSampler" and getattr(indices, "generator", None) is not None:
        return False
    inner = getattr(indices, "sampler", None)
    return inner is None or _draws_first(inner)


_for_loaders = partial(remedy, treats=("input",), reach="next_epoch", cls="bitwise")


@remedy(
    "loader.workers",
    treats=("input",),
    reach="live",
    cls="bitwise",
    doc="Make batches ahead in processes beside the training process.",
    targets=("loader.num_workers",),
    options=(
        Option(
            name="workers",
            kind="int",
            low=0,
            high=MOST_IN_A_SET,
            doc="Number of processes; one less than the rank's CPUs where it is left out.",
        ),
    ),
    class_for=_class_for,
)
def workers(job: Job, options: Mapping[str, object]) -> Undo:
    given = options.get("workers")
    wanted = given if type(given) is int else default_workers(len(os.sched_getaffinity(0)), os.environ)
    planned = job.planned

    def settle(view: LoaderView) -> Mapping[str, object]:
        if view.num_workers == wanted:
            raise Refused(f"the loader has {wanted} {'worker' if wanted == 1 else 'workers'} already")
        _refuse_unusual(view)
        if view.num_workers and not planned:
            raise Refused("the loader has workers of the job's own: another number of them takes a new start")
        if not wanted:
            return WITHOUT_WORKERS
        _refuse_processes()
        _refuse_saved_place(view)
        prefetch = view.prefetch_factor or 2
        if view.num_workers:
            _refuse_starting(view)
        refuse_large(job, view, wanted * prefetch, is_shared=bool(view.num_workers))
        items = read_items(job, view)
        _refuse_handles(items)
        _refuse_own_state(items, is_asked=bool(view.num_workers))
        return {"num_workers": wanted, "prefetch_factor": prefetch}

    readers = Readers(job, partial(DESK.give_back, "loader.workers"), partial(_class_of, job))

    def begun(iterator: object, loader: object) -> None:
        if not wanted:
            _draw_at_once(iterator)
        elif DESK.reads_ahead(loader):
            readers.take_over(iterator, loader, DESK.view_of(loader), begins=True)

    undo_switch = switch_loaders(job, "loader.workers", _where_allowed(job, settle), after=begun)

    def undo() -> None:
        undo_switch()
        readers.leave()

    try:
        _take_over_running(job, readers)
    except BaseException:
        undo()
        raise
    return WatchedUndo(undo, readers.trouble)


def _take_over_running(job: Job, readers: Readers) -> None:
    """The epoch that is running is read ahead from its next batch on."""
    iterator = job.iterator
    if iterator is None or not is_plain(iterator):
        return
    data = vars(iterator)["_dataset"]
    loader = next((each for each in job.loaders if vars(each).get("dataset") is data), None)
    view = DESK.foresee(of_iterator(iterator))
    if view.num_workers:
        readers.take_over(iterator, iterator if loader is None else loader, view, begins=False)


def _draw_at_once(iterator: object) -> None:
    """A sampler draws when an epoch begins, as it did with workers, and not with the first batch."""
    state = vars(iterator)
    first = list(itertools.islice(state["_sampler_iter"], 1))
    state["_sampler_iter"] = itertools.chain(first, state["_sampler_iter"])


def _is_through(iterator: object) -> bool:
    """Whether every batch that its workers were asked for has been handed over."""
    state = vars(iterator)
    return state.get("_send_idx") == state.get("_rcvd_idx") and not state.get("_tasks_outstanding")


def default_workers(cpus: int, env: Mapping[str, str]) -> int:
    """One less than the CPUs of one rank, at least one."""
    ranks = whole_number(env.get("LOCAL_WORLD_SIZE")) or 1
    return max(1, min(MOST_WORKERS, cpus // ranks - 1))


@_for_loaders(
    "loader.prefetch_factor",
    doc="Let each worker load more batches ahead: it evens out items that take long now and then.",
    targets=("loader.prefetch_factor",),
    options=(Option(name="batches", kind="int", default=4, low=1, high=256, doc="Ahead, of each worker."),),
    class_for=_class_for,
)
def prefetch_factor(job: Job, options: Mapping[str, object]) -> Undo:
    wanted = int(str(options.get("batches", 4)))

    def settle(view: LoaderView) -> Mapping[str, object]:
        if not view.num_workers:
            raise Refused("the loader has no workers to load ahead")
        if view.prefetch_factor == wanted:
            raise Refused(f"its workers load {wanted} batches ahead already")
        _refuse_unusual(view)
        refuse_large(job, view, view.num_workers * wanted)
        return {"prefetch_factor": wanted}

    return switch_loaders(job, "loader.prefetch_factor", _where_allowed(job, settle))


@_for_loaders(
    "loader.persistent_workers",
    doc="Keep the workers from one epoch to the next instead of starting new ones.",
    targets=("loader.persistent_workers",),
    class_for=_class_for,
)
def persistent_workers(job: Job, options: Mapping[str, object]) -> Undo:
    torch = job.torch
    forked: MutableMapping[object, DatasetState] = weakref.WeakKeyDictionary()  # as its workers have it

    def settle(view: LoaderView) -> Mapping[str, object]:
        if view.persistent_workers:
            raise Refused("its workers are persistent already")
        if not view.num_workers:
            raise Refused("the loader has no workers to keep")
        _refuse_unusual(view)
        _refuse_starting(view)
        items = read_items(job, view)
        refuse_unseen(items)
        if not items.is_whole:
            raise Refused("the dataset holds what may change unseen")
        _refuse_own_state(items)
        if items.fills:
            raise Refused("the dataset keeps what it has read, and a worker would keep it over epochs")
        return {"persistent_workers": True}

    def begin_as_without(loader: object) -> None:
        if DESK.reads_ahead(loader):
            return
        state, known = vars(loader), forked.get(loader)
        kept_on = state.get("_iterator")
        if kept_on is not None and not (known is not None and known.is_as_it_was and _is_through(kept_on)):
            state["_iterator"] = None  # the job has changed its dataset, or may still read from that one
        if state.get("_iterator") is None:
            forked[loader] = DatasetState(state["dataset"], state.get("collate_fn"))
            return
        # A new iterator takes a seed for its workers, one that begins anew does not: the stream of random
        # numbers that training goes on with must be that of a run without us.
        torch.empty((), dtype=torch.int64).random_(generator=state.get("generator"))

    kept = _where_allowed(job, settle)
    return switch_loaders(job, "loader.persistent_workers", kept, before=begin_as_without)


@_for_loaders(
    "loader.pin_memory",
    doc="Put batches into page-locked memory: copies to the GPU are faster and can overlap.",
    targets=("loader.pin_memory",),
    needs=("cuda",),
    unproven=True,
)
def pin_memory(job: Job, options: Mapping[str, object]) -> Undo:
    if not job.torch.cuda.is_available():
        raise Refused("there is no CUDA device here")

    def settle(view: LoaderView) -> Mapping[str, object]:
        if view.pin_memory:
            raise Refused("its batches are pinned already")
        if view.began_persistent:
            raise Refused("its workers are there for the whole run: it takes a new start")
        return {"pin_memory": True}

    return switch_loaders(job, "loader.pin_memory", settle)


def _refuse_unusual(view: LoaderView) -> None:
    if not view.map_style:
        raise Refused("an iterable dataset divides its data by its workers")
    if view.began_persistent:
        raise Refused("its workers are there for the whole run: it takes a new start")


def _refuse_processes() -> None:
    refuse_children()
    if multiprocessing.current_process().daemon:
        raise Refused("the job is a daemon process, which may have no children")
    method = multiprocessing.get_start_method(allow_none=True)
    if method not in (None, "fork"):
        raise Refused(f"workers would be started by {method}, which not every dataset survives")


def _refuse_own_state(items: Items, *, is_asked: bool = True) -> None:
    """Each worker has a dataset for itself, from when it was forked on.

    Args:
        is_asked: A worker is told which one it is.
    """
    if is_asked and items.asks_worker:
        raise Refused("the code of the dataset asks which worker it runs in")
    if items.own_generator:
        raise Refused("the dataset has a random generator of its own, which each worker would begin anew")
    if items.counted:
        raise Refused("the dataset keeps count of what is read, which each worker would do for itself")
    if items.handed:
        raise Refused("its batches hold the dataset's own memory, which training could write to")


def _refuse_starting(view: LoaderView) -> None:
    """A function that is told a worker's number may do anything with it, but for seeding."""
    starts = view.starts_worker
    while isinstance(starts, partial):
        starts = starts.func
    if starts is not None and not (
        isinstance(starts, FunctionType) and names_in(starts.__code__) <= _SEEDING
    ):
        raise Refused("its workers are started by a function that is given their number")


def _refuse_saved_place(view: LoaderView) -> None:
    """A checkpoint would say that batches were trained which are on their way."""
    indices: object = view.indices
    while indices is not None and not view.num_workers:
        if hasattr(indices, "state_dict"):
            raise Refused("its sampler is saved with where it stands, and would stand some batches ahead")
        indices = getattr(indices, "sampler", None)


def _refuse_handles(items: Items) -> None:
    """What a process can't have for itself, or what may be another thing by the time it is used.

    Forked workers share an open file with its position; some datasets open theirs with an item.
    """
    refuse_unseen(items)
    if items.handles:
        raise Refused(f"the dataset holds an open {items.handles[0]}, which workers would share")


def refuse_large(job: Job, view: LoaderView, batches: int, *, is_shared: bool = True) -> None:
    """Batches on their way lie in memory; those of torch's workers in shared memory, which may be small.

    Raises:
        Refused: they may take more than half of what is free.
    """
    items = read_items(job, view)
    needed = batch_bytes(items, view) * batches
    free = _free_shared_bytes() if is_shared else available_bytes(job.torch, Path("/"))
    if free is not None and needed > free / 2:
        where = "shared memory" if is_shared else "memory"
        raise Refused(f"{batches} batches ahead are {needed >> 20} MiB of {where}, {free >> 20} MiB are free")


def _free_shared_bytes() -> int | None:
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
