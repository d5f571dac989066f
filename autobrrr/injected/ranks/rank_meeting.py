"""Where the ranks of a job on one machine find the register that they share.

In: the job's torch, the address of another rank's log or none. Out: a log and the count that all ranks have
in common. Who attaches to all ranks hands the address of the first one's log to the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from ..live_torch.collective_count import collective_count
from ..live_torch.live_job import Job
from ..remedies.registry import Refused
from .shared_log import RegisterLost, SharedLog


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMeeting:
    """What a rank needs to change something together with the others."""

    rank: int
    ranks: int
    log: SharedLog
    count: Callable[[], int | None]  # collectives that this rank has begun: at a boundary the same for all


def refuse_sharded(job: Job) -> None:
    """Raises Refused where each rank holds a part of the parameters: remedies were not tried on those."""
    if any(hasattr(each, "device_mesh") or type(each).__name__ == "FlatParameter" for each in job.updated):
        raise Refused("the job's parameters are sharded over the ranks")


def meet(torch: ModuleType, address: str) -> RankMeeting:
    """Find another rank's log at its address, or make one for the others where that is empty.

    Raises:
        RegisterLost: there is no way to the others; the message says why.
    """
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        raise RegisterLost("the job has no process group")
    count = collective_count(torch)
    if count() is None:
        raise RegisterLost("its process group does not count collectives")
    log = SharedLog.open(address) if address else SharedLog.create()
    return RankMeeting(
        rank=int(distributed.get_rank()), ranks=int(distributed.get_world_size()), log=log, count=count
    )
