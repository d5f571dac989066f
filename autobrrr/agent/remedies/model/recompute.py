"""`recompute.checkpoint`: the activations of repeated blocks are computed again in backward, not kept.

It buys memory with time: a batch that did not fit fits. By itself it makes steps longer, so nobody tries it
unless it is named. torch's own `checkpoint` stands around each block.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from types import ModuleType

from ...live_torch.live_job import Job
from ...live_torch.module_call_slot import Call
from ..model_calls.call_layers import Rank, lead_through, repeated_blocks, trained_roots
from ..registry import Refused, Undo, remedy

STATEFUL = ("BatchNorm", "SyncBatchNorm", "LazyBatchNorm", "InstanceNorm")


@remedy(
    "recompute.checkpoint",
    treats=("memory",),
    reach="relaunch",  # it runs each block's code twice
    cls="changes-training",
    doc="Compute the activations of repeated blocks again in backward, as things are then: "
    "room for a larger batch.",
    targets=("module.code",),
    only_named=True,
)
def checkpoint(job: Job, options: Mapping[str, object]) -> Undo:
    blocks = repeated_blocks(trained_roots(job))
    for block in blocks:
        for part in block.modules():
            if getattr(part, "track_running_stats", False) and type(part).__name__.startswith(STATEFUL):
                raise Refused(f"{type(part).__name__} would count every batch twice")
            if any("checkpoint" in name and value is True for name, value in vars(part).items()):
                raise Refused("the job checkpoints activations already")
    with ExitStack() as undo:
        for block in blocks:
            undo.callback(lead_through(block, Rank.CODE, partial(_checkpointed, job.torch)))
        return undo.pop_all().close


def _checkpointed(torch: ModuleType, below: Call) -> Call:
    around: Call = import_module("torch.utils.checkpoint").checkpoint

    def call(*args: object, **kwargs: object) -> object:
        if not torch.is_grad_enabled():
            return below(*args, **kwargs)
        return around(below, *args, use_reentrant=False, **kwargs)

    return call
