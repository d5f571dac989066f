"""Where the training thread stands, looked at from the agent's thread every few milliseconds.

In: `sys._current_frames`, the loader's queue. Out: the payload of the event `frames`
(`records.FrameSamples`): the innermost frame of the user's own code, by place and phase, with the time since
the look before (a thread that holds the interpreter is looked at late, and less often); whether it is reached
through what the loop reads its batches from; whether torch or a framework runs there and not the user's own
code; and whether the thread slept between two looks that found it at the same place, by the scheduler's
clock. Beside it, where the workers of a loader stand.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from types import CodeType, FrameType, ModuleType
from typing import NamedTuple

from ..phases.loader_watch import LoaderWatch
from ..wire.kernel_texts import scheduled_ns
from .code_sites import (
    GATES,
    MOST_SITES,
    UPDATES,
    CallPaths,
    CallSite,
    Code,
    Stacks,
    UserStack,
    called_at,
    feeds_in,
    is_own,
    model_calls,
    named,
    sites_of_the_loop,
    sites_on,
)
from .worker_stacks import WorkerLooks

DEEPEST = 200
SWITCH_S = 0.0001
_COMPILED = ("_dynamo/", "_functorch/_aot_autograd/", "_inductor/")  # `torch.func` is in _functorch, too
# Code of torch that gets to its operators. What else is there saves, loads, logs or waits for others.
_DISPATCH = (
    *("_functorch/", "func/", "autograd/", "nn/", "optim/", "amp/"),
    *("_ops.py", "_tensor.py", "functional.py"),
)
_NO_DISPATCH = ("nn/parallel/",)
_LIBRARY = {  # files that serve one purpose, which the user's line then has
    "torch/distributions/constraints.py": "validates",
    "torch/distributions/distribution.py": "validates",
    "torch/_tensor_str.py": "prints",
    "torch/nn/utils/parametrize.py": "parametrizes",
    "torch/nn/utils/parametrizations.py": "parametrizes",
}
MOST_PLACES, MOST_CALLS = 50, 60
COUNTS = ("samples", "stayed", "asleep", "ns", "long_ns")
ENOUGH, MOST_S = 60, 6.0  # looks; without so many it goes on for so long
LONGER = 2.5  # times the usual step: it is a long one
WORKERS_EVERY = 3  # looks at training for one at a worker
_LOADER = "torch/utils/data/"
_LOADING = {  # functions of torch's loader, and what it does there
    "_next_index": "sampler",
    "_shutdown_workers": "worker start",
    "_try_get_data": "waits for workers",
    "_get_data": "waits for workers",
}


class Place(NamedTuple):
    """Where a thread stands; with what looks count for, the fields of `records.FrameCount`."""

    where: str
    phase: str
    in_loader: bool
    in_collective: bool
    does: str
    own: bool


class StackLook(NamedTuple):
    """Where the thread stood once."""

    place: Place
    path: UserStack
    inner: CodeType  # the innermost frame's, whosever it is
    serves: str = ""  # what a library that it called, or that called it, serves
    served: str = ""  # the line
    flat: int = 0  # of the path, frames that called no module
    at: CallSite | None = None  # the user's line
    called: CodeType | None = None  # the library function that this line called; None for C code


class Sleeps:
    """Whether a look finds the thread where it was before, and whether it slept in between.

    Args:
        clock: How long the thread ran and waited for a CPU, or None if unreadable.
    """

    def __init__(self, clock: Callable[[], int | None]) -> None:
        self._clock = clock
        self._before: tuple[Place, int, int] | None = None

    def see(self, place: Place, now_ns: int) -> tuple[bool, bool]:
        """The thread stands here now."""
        busy_ns, before = self._clock(), self._before
        self._before = None if busy_ns is None else (place, now_ns, busy_ns)
        if busy_ns is None or before is None or before[0] != place:
            return False, False
        return True, 2 * (busy_ns - before[2]) < now_ns - before[1]


def sample(
    torch: ModuleType,
    ident: int,
    loader: LoaderWatch,
    *,
    for_s: float,
    every_s: float,
    tid: int | None = None,
    ended: Callable[[], bool] = lambda: False,
    running_ns: Callable[[], int] = lambda: 0,
    usual_ns: int | None = None,
    also: Callable[[int, Stacks], list[dict[str, object]]] = lambda looks, stacks: [],
) -> dict[str, object]:
    """Sample one thread's stack for a while, or until it has `ended`: nobody waits for the samples any more.

    Args:
        tid: Its number in the kernel, where that is known.
        running_ns: How long the step has run that is running.
        usual_ns: What a step takes; None: no step is a long one.
        also: Further places in the code, of so many looks that found these lines.
    """
    foreign = foreign_folders(torch)
    sleeps = Sleeps(lambda: None if (known := scheduled_ns(tid)) is None else sum(known))
    seen: Counter[StackLook] = Counter()
    taken: list[tuple[Place, tuple[int, ...]]] = []  # what each look counts for, in the order of `COUNTS`
    workers: WorkerLooks | None = None
    looked = empty = 0
    before_ns = time.perf_counter_ns()
    end = time.monotonic() + for_s
    latest = max(end, min(end + 3 * for_s, time.monotonic() + MOST_S))  # of a job that keeps the interpreter
    with looks_come_soon():
        while time.monotonic() < (end if len(taken) >= ENOUGH else latest) and not ended():
            found = look(ident, foreign, loader)
            if found is None:
                break
            now_ns = time.perf_counter_ns()
            took_ns, before_ns = now_ns - before_ns, now_ns
            long_ns = took_ns * (usual_ns is not None and running_ns() > LONGER * usual_ns)
            seen[found] += 1
            slept = map(int, sleeps.see(found.place, now_ns))  # to the sidecar they are numbers
            taken.append((found.place, (1, *slept, took_ns, long_ns)))
            is_empty = loader.queue_empty()
            if is_empty is not None:
                looked += 1
                empty += is_empty
            if loader.workers and len(taken) % WORKERS_EVERY == 0:
                workers = workers or WorkerLooks(ident, foreign)
                workers.look(loader.worker_pids())
            time.sleep(every_s)
    paths: CallPaths = Counter()
    for (place, path, *_), count in seen.items():
        paths[place.phase, path] += count
    feeds, loop_sites = feeds_in(paths), sites_of_the_loop(paths, foreign)
    stacks, flat = Stacks(), Stacks()
    # What calls backward by itself may loop over gradients; what updates, or leads to a backward, trains.
    trains = {at for phase, path in paths for at in path[phase == "backward" :] if phase in UPDATES}
    serves: Counter[tuple[str, str]] = Counter()
    counted: dict[Place, Counter[str]] = {}
    for place, counts in taken:
        counted.setdefault(place, Counter()).update(dict(zip(COUNTS, counts, strict=True)))
    calls: Counter[tuple[str, str]] = Counter()
    read = lru_cache(Code)
    for (place, path, inner, what, served, calls_none, at, called), count in seen.items():
        fed = place.phase == "other" and not feeds.isdisjoint(code for code, _ in path)
        counted[place]["in_feed"] += count * fed
        counted[place]["in_between"] += count * in_library(path, inner, loop_sites, foreign)
        stacks.update(dict.fromkeys(path, count))
        flat.update(dict.fromkeys(path[:calls_none], count))
        if what:
            serves[what, served] += count
        own = [each for each in path if is_own(each[0], foreign)]
        made = [outer for inner, outer in pairwise(own) if inner[0].co_name == "__init__"]
        serves.update({("makes anew", named(*each)): count for each in made[-1:]})
        if at is not None:
            names = called_at(read(at[0]), at[1], called)
            calls.update({(f"calls {name}", place.where): count for name in names})
    serves.update(dict(calls.most_common(MOST_CALLS)))
    most = sorted(counted.items(), key=lambda item: -item[1]["samples"])[:MOST_PLACES]
    return {
        "samples": len(taken),
        "places": [
            {**place._asdict(), **row, "in_feed": 2 * row["in_feed"] > row["samples"]} for place, row in most
        ],
        "ns": sum(row["ns"] for row in counted.values()),
        "workers": [] if workers is None else [list(each) for each in workers.busy.most_common(MOST_SITES)],
        "worker_looks": 0 if workers is None else workers.looks,
        "queue_empty_share": empty / looked if looked else None,
        "code": sites_on(stacks, foreign, flat, trains)
        + [*model_calls(paths, foreign)]
        + [{"what": what, "where": at, "samples": count} for (what, at), count in serves.items()]
        + also(len(taken), stacks),
    }


def in_library(path: UserStack, inner: CodeType, loop_sites: set[CallSite], foreign: tuple[str, ...]) -> bool:
    """Whether torch gets to its operators there, or a framework runs a loop of its own."""
    if "-packages/" not in inner.co_filename:
        return False
    _, in_torch, part = inner.co_filename.rpartition("-packages/torch/")
    if in_torch:
        return part.startswith(_DISPATCH) and not part.startswith(_NO_DISPATCH)
    return next((at for at in path if is_own(at[0], foreign)), None) in loop_sites


def look(ident: int, foreign: tuple[str, ...], loader: LoaderWatch | None = None) -> StackLook | None:
    """Where the thread stands now; None where it is gone. Holds on to no frame: it keeps tensors alive."""
    frame = sys._current_frames().get(ident)
    return None if frame is None else look_at(frame, foreign, loader)


@contextmanager
def looks_come_soon() -> Iterator[None]:
    """A thread that runs Python lets go of the interpreter soon after another one asks for it.

    By default it keeps it for 5 ms, which a thread that calls torch never needs: it lets go in every
    operator. Samples would fall there, and hardly ever into the user's own Python.
    """
    before = sys.getswitchinterval()
    if before <= SWITCH_S:
        yield
        return
    sys.setswitchinterval(SWITCH_S)
    ours = sys.getswitchinterval()
    try:
        yield
    finally:
        if sys.getswitchinterval() == ours:  # else the user has set it meanwhile
            sys.setswitchinterval(before)


def foreign_folders(torch: ModuleType) -> tuple[str, ...]:
    """Folders whose code is not the user's own."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = getattr(torch, "__file__", None)
    if isinstance(found, str):
        folders.append(os.path.dirname(found))
    generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or "/tmp/torchinductor_"
    ours = os.path.dirname(os.path.dirname(sample.__code__.co_filename)) or "<autobrrr"
    return (*(folder.rstrip("/") + "/" for folder in folders), generated, "<frozen", "<autobrrr", ours)


def look_at(inner: FrameType, foreign: tuple[str, ...], loader: LoaderWatch | None = None) -> StackLook:
    """The innermost frame of the user's code, the phase, whether loader or collective are on the stack.

    The path is the user's; of others' code it has what gates a synchronization. A `loader` that knows no
    iterator is told the one that is asked for a batch.
    """
    frame: FrameType | None = inner
    path: list[CallSite] = []
    shown: CallSite | None = None
    called: CodeType | None = None
    phase, does, serves, flat, again = "other", "", "", 0, 0
    in_loader = in_collective = in_closure = False
    for _ in range(DEEPEST):
        if frame is None:
            break
        code = frame.f_code
        name, file = code.co_name, code.co_filename
        own = is_own(code, foreign)
        if own or not GATES.isdisjoint(code.co_names):
            path.append((code, frame.f_lasti))
            flat += phase == "other"
        if not does and _LOADER in file:
            does = _loading(frame)
        if own and shown is None:
            shown = path[-1]
        elif shown is None:
            called = code
        if shown is None and not serves:
            serves = _LIBRARY.get(file.rpartition("-packages/")[2], "")
        if name == "__next__" and file.endswith("utils/data/dataloader.py"):
            if loader is not None and not in_loader and loader.is_unknown():
                loader.found(frame.f_locals.get("self"))
            in_loader = True
            phase = "data_wait"
        elif shown is None and file.endswith("torch/distributed/distributed_c10d.py"):
            in_collective = True
        elif phase in ("other", "compiled"):
            found = _phase(name, file)
            phase = phase if found == "other" else found
            in_closure = in_closure or (shown is not None and name == "step" and "/torch/optim/" in file)
            if phase == "optimizer" and in_closure:
                phase = "other"  # the optimizer has called the user's code
        elif phase == "forward" and not again and _phase(name, file) == "backward":
            again = len(path)  # a checkpoint computes what backward needs
        frame = frame.f_back
    phase = "forward" if phase == "compiled" else phase  # of a function: no module is called
    where = named(*(shown or (inner.f_code, inner.f_lasti)))
    place = Place(where, phase, in_loader, in_collective, does, shown is not None)
    if again:
        serves, where = "recomputes", named(*path[again - 1])
    return StackLook(place, tuple(path), inner.f_code, serves, where, flat, shown, called)


def _loading(frame: FrameType) -> str:
    """What a frame of torch's DataLoader is doing."""
    code = frame.f_code
    if code.co_filename.endswith("_utils/collate.py"):
        return "collate"
    if code.co_filename.endswith("_utils/fetch.py"):
        return "loads"
    if not code.co_filename.endswith("data/dataloader.py"):
        return ""
    if code.co_name == "__init__" and "_worker_result_queue" in code.co_names:
        return "worker start"
    does = _LOADING.get(code.co_name, "")
    if does == "waits for workers":  # for the first batch: they start, and open what they read
        iterator = frame.f_locals.get("self")
        first = getattr(iterator, "_rcvd_idx", None) == 0
        return "worker start" if first and not getattr(iterator, "_persistent_workers", True) else does
    return does


@lru_cache(maxsize=4096)
def _phase(name: str, file: str) -> str:
    if name in ("backward", "_engine_run_backward") and "torch/" in file:
        return "backward"
    if name in ("wrapper", "zero_grad") and file.endswith("torch/optim/optimizer.py"):
        return "optimizer"
    if name == "_call_impl" and file.endswith("nn/modules/module.py"):
        return "forward"
    return "compiled" if any(f"/torch/{part}" in file for part in _COMPILED) else "other"
