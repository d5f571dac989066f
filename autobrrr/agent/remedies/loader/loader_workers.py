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
from ...wire.kernel_texts import whole_number
from ..registry import Option, RefusalCode, Refused, Undo, remedy
from .loader_settings import set_loaders

MOST_WORKERS = 8  # by default
HIGHEST = 64
AHEAD = 2  # batches a worker loads ahead, where the script does not say: torch's default
WORKER_BYTES = 16 << 20  # pages of a forked worker that are its own: 12.5 MiB with torch 2.13
REWRITTEN = 4  # tensors of a parameter's size, in a step: itself, its gradient, two averages
MAP_STYLE = 0  # torch.utils.data._DatasetKind.Map
UNSHARED = ("_io", "h5py", "lmdb", "sqlite3", "tarfile", "zipfile")
"""Modules whose objects hold a place in an open file, which forked processes would move for each other."""

_for_loaders = partial(remedy, treats=("input",), reach="next_epoch", cls="stream", rare=True)


def default_workers(cpus: int, env: Mapping[str, str]) -> int:
    """The CPUs of one rank: where loading takes longer than training, the training process mostly waits."""
    ranks = whole_number(env.get("LOCAL_WORLD_SIZE")) or 1
    return max(1, min(MOST_WORKERS, cpus // ranks))


def waiting_workers(now: int) -> int:
    """How many to try where loading waits for others more than it computes."""
    return min(HIGHEST, max(MOST_WORKERS, 2 * now))


def worker_bytes(job: Job) -> int:
    """Host bytes of workers and their batches; pages that each step rewrites are held twice after a fork."""
    rewritten = 0
    now = int(getattr(job.iterator, "_num_workers", 0))
    if not now:  # else they are held twice already
        host = [each for each in job.updated if each.device.type == "cpu"]
        rewritten = REWRITTEN * sum(each.numel() * each.element_size() for each in host)
    return rewritten + waiting_workers(now) * (WORKER_BYTES + AHEAD * job.batch_bytes)


@_for_loaders(
    "loader.workers",
    doc="Load batches ahead in processes beside the training process.",
    targets=("loader.num_workers",),
    options=(Option(name="workers", kind="int", low=0, high=HIGHEST, doc="By default, the rank's CPUs."),),
    host_takes=worker_bytes,
)
def workers(job: Job, options: Mapping[str, object]) -> Undo:
    given = options.get("workers")
    wanted = given if type(given) is int else default_workers(len(os.sched_getaffinity(0)), os.environ)

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


def _attribute(name: str, doc: str, **more: Any) -> None:
    """Enters a remedy that sets one attribute of loaders."""

    @_for_loaders(f"loader.{name}", doc=doc, targets=(f"loader.{name}",), **more)
    def apply(job: Job, options: Mapping[str, object]) -> Undo:
        value, on_cuda = options["batches"] if options else True, "needs" in more
        if on_cuda and not job.torch.cuda.is_available():
            raise Refused("there is no CUDA device here")

        def settle(loader: Any) -> Mapping[str, object]:
            if not on_cuda and not loader.num_workers:
                raise Refused("the loader has no workers", RefusalCode.NOT_MET)
            if getattr(loader, name) == value:
                raise Refused(f"the loader has {name}={value} already")
            return {name: value}

        return set_loaders(job, settle)


_attribute(
    "prefetch_factor",
    "Let each worker load more batches ahead: it evens out items that take long now and then.",
    options=(
        Option(name="batches", kind="int", default=2 * AHEAD, low=1, high=256, doc="Ahead, of each worker."),
    ),
    host_takes=lambda job: int(getattr(job.iterator, "_num_workers", 0)) * 2 * AHEAD * job.batch_bytes,
)
_attribute("persistent_workers", "Keep the workers from one epoch to the next instead of starting new ones.")
_attribute(
    "pin_memory",
    "Put batches into page-locked memory: copies to the GPU are faster and can overlap.",
    needs=("cuda",),
    unproven=True,
)


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
