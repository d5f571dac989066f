"""`recompute.checkpoint`: the activations of repeated blocks are computed again in backward, not kept.

It buys memory with time: a batch that did not fit fits. By itself it makes steps longer, so the tuner
does not try it unless it is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib import import_module

from ...live_torch.live_job import Job
from ...live_torch.torch_types import Module
from ..model_calls.call_layers import Call, Rank, lead_through, refuse_odd, trained_roots
from ..model_calls.rehearsal import refuse_noticed
from ..model_calls.repeated_blocks import repeated_blocks
from ..registry import Refused, Undo, remedy

STATEFUL = ("BatchNorm", "SyncBatchNorm", "LazyBatchNorm", "InstanceNorm")


@remedy(
    "recompute.checkpoint",
    treats=("memory",),
    reach="live",
    cls="bitwise",
    doc="Compute the activations of repeated blocks again in backward: room for a larger batch.",
    targets=("module.code",),
    only_named=True,
)
def checkpoint(job: Job, options: Mapping[str, object]) -> Undo:
    torch = job.torch
    blocks = repeated_blocks(trained_roots(job))
    refuse_odd(torch, blocks)
    _refuse_what_counts(job, blocks)
    run = import_module("torch.utils.checkpoint").checkpoint
    grad_enabled: Callable[[], bool] = torch.is_grad_enabled

    def layer(below: Call) -> Call:
        def call(*args: object, **kwargs: object) -> object:
            if not grad_enabled():
                return below(*args, **kwargs)
            return run(below, *args, use_reentrant=False, preserve_rng_state=True, **kwargs)

        return call

    with ExitStack() as undo:
        for block in blocks:
            undo.callback(lead_through(block, Rank.CODE, layer))
        return undo.pop_all().close


def _refuse_what_counts(job: Job, blocks: list[Module]) -> None:
    """Refuse blocks whose second forward would be noticed.

    Raises:
        Refused: running statistics, hooks of the job's own, or code that is seen from outside.
    """
    for block in blocks:
        for part in block.modules():
            if getattr(part, "track_running_stats", False) and type(part).__name__.startswith(STATEFUL):
                raise Refused(f"{type(part).__name__} would count every batch twice")
            if any("checkpoint" in name and value is True for name, value in vars(part).items()):
                raise Refused("the job checkpoints activations already")
    refuse_noticed(job.torch, blocks, "twice")
