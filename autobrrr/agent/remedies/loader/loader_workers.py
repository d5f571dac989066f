"""Loader processes: how many, how far ahead, for how long; and page-locked batches.

Each sets the DataLoader's own attributes; torch's workers do the rest. Random numbers that an item draws in a
worker are others than those in the training process: class `stream`, always.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from ...live_torch.live_job import Job
from ...wire.plain_number import whole_number
from ..registry import Option, RefusalCode, Refused, Undo, remedy
from .loader_settings import set_loaders

MOST_WORKERS = 8  # by default
MOST_ASKED_FOR = 64
AHEAD = 2  # batches a worker loads ahead, where the script does not say: torch's default
WORKER_BYTES = 16 << 20  # pages of a forked worker that are its own: 12.5 MiB with torch 2.13
MAP_STYLE = 0  # torch.utils.data._DatasetKind.Map
UNSHARED = ("_io", "h5py", "lmdb", "sqlite3", "tarfile", "zipfile")
"""Modules whose objects hold a place in an open file, which forked processes would move for each other."""

_for_loaders = partial(remedy, treats=("input",), reach="next_epoch", cls="stream", rare=True)


def default_workers(cpus: int, env: Mapping[str, str]) -> int:
    """One less than the CPUs of one rank, at least one."""
    ranks = whole_number(env.get("LOCAL_WORLD_SIZE")) or 1
    return max(1, min(MOST_WORKERS, cpus // ranks - 1))


def _workers_here() -> int:
    return default_workers(len(os.sched_getaffinity(0)), os.environ)


def worker_bytes(job: Job) -> int:
    """Host bytes of workers and their batches; pages that each step rewrites are held twice after a fork."""
    held: list[object] = []
    if not getattr(job.iterator, "_num_workers", 0):  # else they are held twice already
        states = [state for each in job.optimizers for state in getattr(each, "state", {}).values()]
        held += [value for state in states if isinstance(state, dict) for value in state.values()]
        held += [each for parameter in job.updated for each in (parameter, parameter.grad)]
    host = [each for each in held if getattr(getattr(each, "device", None), "type", None) == "cpu"]
    rewritten = sum(each.numel() * each.element_size() for each in host)  # type: ignore[attr-defined]
    return int(rewritten) + _workers_here() * (WORKER_BYTES + AHEAD * job.batch_bytes)


@_for_loaders(
    "loader.workers",
    doc="Load batches ahead in processes beside the training process.",
    targets=("loader.num_workers",),
    options=(
        Option(
            name="workers",
            kind="int",
            low=0,
            high=MOST_ASKED_FOR,
            doc="Number of processes; one less than the rank's CPUs where it is left out.",
        ),
    ),
    host_takes=worker_bytes,
)
def workers(job: Job, options: Mapping[str, object]) -> Undo:
    given = options.get("workers")
    wanted = given if type(given) is int else _workers_here()

    def settle(loader: Any) -> Mapping[str, object]:
        if loader.num_workers == wanted:
            raise Refused(f"the loader has {wanted} {'worker' if wanted == 1 else 'workers'} already")
        if loader._dataset_kind != MAP_STYLE:
            raise Refused("each worker of an iterable dataset may load all of it")
        if not wanted:
            return {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False}
        _refuse_processes()
        _refuse_open_files(loader.dataset)
        return {"num_workers": wanted, "prefetch_factor": loader.prefetch_factor or AHEAD}

    return set_loaders(job, settle)


@_for_loaders(
    "loader.prefetch_factor",
    doc="Let each worker load more batches ahead: it evens out items that take long now and then.",
    targets=("loader.prefetch_factor",),
    options=(
        Option(name="batches", kind="int", default=2 * AHEAD, low=1, high=256, doc="Ahead, of each worker."),
    ),
    host_takes=lambda job: int(getattr(job.iterator, "_num_workers", 0)) * 2 * AHEAD * job.batch_bytes,
)
def prefetch_factor(job: Job, options: Mapping[str, object]) -> Undo:
    return _set(job, "prefetch_factor", int(str(options.get("batches", 2 * AHEAD))))


@_for_loaders(
    "loader.persistent_workers",
    doc="Keep the workers from one epoch to the next instead of starting new ones.",
    targets=("loader.persistent_workers",),
)
def persistent_workers(job: Job, options: Mapping[str, object]) -> Undo:
    return _set(job, "persistent_workers", True)


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
    return _set(job, "pin_memory", True, by_workers=False)


def _set(job: Job, name: str, value: object, *, by_workers: bool = True) -> Undo:
    def settle(loader: Any) -> Mapping[str, object]:
        if by_workers and not loader.num_workers:
            raise Refused("the loader has no workers", RefusalCode.NOT_MET)
        if getattr(loader, name) == value:
            raise Refused(f"the loader has {name}={value} already")
        return {name: value}

    return set_loaders(job, settle)


def _refuse_processes() -> None:
    if multiprocessing.current_process().daemon:
        raise Refused("the job is a daemon process, which may have no children")
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if method != "fork":
        raise Refused(f"workers would start by {method}, which only scripts written for it survive")


def _refuse_open_files(dataset: object) -> None:
    while dataset is not None:
        state = getattr(dataset, "__dict__", {})
        for name, value in list(state.items()):
            if type(value).__module__.partition(".")[0] in UNSHARED:
                raise Refused(f"the dataset keeps a file open in {name}; workers would share its position")
        dataset = state.get("dataset")
