"""How DistributedDataParallel is made: `ddp.bucket_size`, `ddp.gradient_as_bucket_view`, `ddp.static_graph`.

It takes them when it is constructed and never again: the agent of a job that starts shows the arguments of
each construction to these remedies, before it happens. What the script asks for itself is left alone, and
where buckets change all ranks change them or none does: ranks whose gradients lie in different buckets would
add up what does not belong. A rank may be without an agent, so they ask the store at which they have met.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from ...live_torch.live_job import Job
from ..registry import Option, Refused, Undo, remedy

PATIENCE_S = 60.0
LOOK_S = 0.02
YES, NO = "all", "some"
_ASKED: Counter[str] = Counter()


def _arguments(job: Job, name: str) -> dict[str, object]:
    """The arguments of the construction that is under way.

    Raises:
        Refused: there is none, or the script sets this one itself.
    """
    arguments = job.ddp_arguments
    if arguments is None:
        raise Refused("no DistributedDataParallel has been made")
    if arguments.get(name):
        raise Refused(f"the script sets {name} = {arguments[name]} already")
    return arguments


_at_construction = partial(remedy, reach="relaunch")


@_at_construction(
    "ddp.bucket_size",
    treats=("communication",),
    cls="rounding",
    doc="Reduce gradients in buckets of another size: large ones cost fewer calls, small ones start sooner.",
    targets=("ddp.bucket_cap_mb",),
    options=(Option(name="megabytes", kind="int", default=100, low=1, high=4096, doc="Of one bucket."),),
)
def bucket_size(job: Job, options: Mapping[str, object]) -> Undo:
    arguments, megabytes = _arguments(job, "bucket_cap_mb"), int(str(options.get("megabytes", 100)))
    agree(job, arguments, f"ddp.bucket_size/{megabytes}")
    arguments["bucket_cap_mb"] = megabytes
    return lambda: None


@_at_construction(
    "ddp.gradient_as_bucket_view",
    treats=("communication", "memory"),
    cls="bitwise",
    doc="Let gradients lie in the buckets that are reduced: one copy and one set of memory less.",
    targets=("ddp.gradient_as_bucket_view",),
)
def gradient_as_bucket_view(job: Job, options: Mapping[str, object]) -> Undo:
    _arguments(job, "gradient_as_bucket_view")["gradient_as_bucket_view"] = True
    return lambda: None


@_at_construction(
    "ddp.static_graph",
    treats=("communication", "overhead"),
    cls="rounding",
    doc="Say that every step uses the same parameters: no search for unused ones, buckets in order of use.",
    targets=("ddp.static_graph",),
)
def static_graph(job: Job, options: Mapping[str, object]) -> Undo:
    arguments = _arguments(job, "static_graph")
    if arguments.get("find_unused_parameters"):
        raise Refused("the script searches for unused parameters: its steps may differ")
    agree(job, arguments, "ddp.static_graph")
    arguments["static_graph"] = True
    return lambda: None


def agree(
    job: Job,
    arguments: Mapping[str, object],
    what: str,
    *,
    earlier: Counter[str] = _ASKED,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until every rank has asked for this change of this construction.

    Args:
        earlier: How often this rank has asked for each change.

    Raises:
        Refused: not all have, or they have no way to find out.
    """
    distributed = getattr(job.torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return
    if arguments.get("device_mesh") is not None:
        raise Refused("not possible with a device mesh")
    group = arguments.get("process_group") or distributed.group.WORLD
    ranks = distributed.get_process_group_ranks(group)
    if len(ranks) < 2:
        return
    name = f"autobrrr/{what}/{zlib.crc32(repr(list(ranks)).encode())}"
    earlier[name] += 1
    key = f"{name}/{earlier[name]}"
    try:
        store = distributed.distributed_c10d._get_default_store()
        asked = store.add(key, 1)
        until = clock() + PATIENCE_S
        while asked < len(ranks) and clock() < until:
            sleep(LOOK_S)
            asked = store.add(key, 0)
        answer = store.compare_set(f"{key}/answer", "", YES if asked >= len(ranks) else NO)
    except (AttributeError, RuntimeError, NotImplementedError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise Refused(f"the ranks could not agree on it: {first}") from None
    if answer != YES.encode():
        raise Refused(f"not all of the {len(ranks)} ranks asked for it within {PATIENCE_S:.0f} s")
