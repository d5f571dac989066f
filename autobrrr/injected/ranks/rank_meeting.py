"""Where the ranks of a job find the register that they share: through the job's own store.

In: the job's torch. Out: a register and the count that all ranks have in common. Called on the agent's
thread; may take seconds, and nothing of the job waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from ..live_torch.collective_count import collective_count
from ..live_torch.live_job import Job
from ..remedies.registry import Refused
from . import job_store
from .shared_log import NotThisMachine, RegisterLost, SharedLog

WHERE = "log"
MOST_TRIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMeeting:
    """What a rank needs to change something together with the others."""

    rank: int
    ranks: int
    log: SharedLog
    store: job_store.JobStore
    count: Callable[[], int | None]  # collectives that this rank has begun: at a boundary the same for all

    def leave(self) -> None:
        """Nothing of the ranks is asked any more."""
        self.log.leave()
        self.store.leave()


def refuse_sharded(job: Job) -> None:
    """Raises Refused where each rank holds a part of the parameters: remedies were not tried on those."""
    if any(hasattr(each, "device_mesh") or type(each).__name__ == "FlatParameter" for each in job.updated):
        raise Refused("the job's parameters are sharded over the ranks")


def meet(torch: ModuleType) -> RankMeeting:
    """Find the others' log, or make one for them.

    Raises:
        RegisterLost: there is no way to the others; the message says why.
    """
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        raise RegisterLost("the job has no process group")
    count = collective_count(torch)
    if count() is None:
        raise RegisterLost("its process group does not count collectives")
    store = job_store.of_job(torch)
    rank, ranks = int(distributed.get_rank()), int(distributed.get_world_size())
    try:
        log = _shared(store)
    except RegisterLost:
        store.leave()
        raise
    return RankMeeting(rank=rank, ranks=ranks, log=log, store=store, count=count)


def _shared(store: job_store.JobStore) -> SharedLog:
    made: SharedLog | None = None
    for _ in range(MOST_TRIES):
        standing = store.get(WHERE)
        found = None if standing is None else _opened(standing)
        if found is None:
            made = made or SharedLog.create()
            if store.put(WHERE, made.address, instead_of=standing or "") == made.address:
                return made
            continue
        if made is not None:
            made.leave()
        return found
    raise RegisterLost("the ranks found no log in common")


def _opened(address: str) -> SharedLog | None:
    """That of another rank; None where it has gone. Raises NotThisMachine."""
    try:
        return SharedLog.open(address)
    except NotThisMachine:
        raise
    except RegisterLost:
        return None
