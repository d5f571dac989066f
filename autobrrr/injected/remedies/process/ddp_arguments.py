"""How DistributedDataParallel is made: `ddp.bucket_size`, `ddp.gradient_as_bucket_view`, `ddp.static_graph`.

It takes them when it is constructed and never again: the agent of a job that starts shows the arguments of
each construction to these remedies, before it happens. What the script asks for itself is left alone, and
where buckets change all ranks change them or none does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ...live_torch.live_job import Job
from ..registry import Option, Refused, Undo, remedy
from .rank_agreement import agree


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


_at_construction = partial(remedy, reach="relaunch", undo_safe=False)


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
