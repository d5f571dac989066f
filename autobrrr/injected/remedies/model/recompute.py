"""`recompute.checkpoint`: the activations of repeated blocks are computed again in backward, not kept.

It buys memory with time: a batch that did not fit fits. By itself it makes steps longer, so the tuner
does not try it unless it is named. The first call of each block is tried out (`recomputed_call`). What a
forward depends on can't be listed in full: one that depends on anything that changes before its backward
comes out otherwise there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from ...job_code.side_effect_scan import ScanFindings
from ...live_torch.live_job import Job
from ...live_torch.torch_types import Module
from ..model_calls.call_layers import Rank, lead_through, refuse_odd, trained_roots
from ..model_calls.rehearsal import refuse_noticed
from ..model_calls.repeated_blocks import repeated_blocks
from ..registry import Refused, Undo, WatchedUndo, remedy
from .recomputed_call import RecomputedCall

STATEFUL = ("BatchNorm", "SyncBatchNorm", "LazyBatchNorm", "InstanceNorm")


@remedy(
    "recompute.checkpoint",
    treats=("memory",),
    reach="live",
    cls="changes-training",
    doc="Compute the activations of repeated blocks again in backward, as things are then: "
    "room for a larger batch.",
    targets=("module.code",),
    only_named=True,
)
def checkpoint(job: Job, options: Mapping[str, object]) -> Undo:
    torch = job.torch
    blocks = repeated_blocks(trained_roots(job))
    refuse_odd(torch, blocks)
    findings = _refuse_what_counts(job, blocks)
    calls = [RecomputedCall(torch, block, findings) for block in blocks]
    with ExitStack() as undo:
        for block, call in zip(blocks, calls, strict=True):
            undo.callback(lead_through(block, Rank.CODE, call.layer))
        applied = undo.pop_all()
    return WatchedUndo(applied.close, lambda: next((call.broken for call in calls if call.broken), None))


def _refuse_what_counts(job: Job, blocks: list[Module]) -> ScanFindings:
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
    return refuse_noticed(job.torch, blocks, "twice").findings
