"""How many collectives the default process group has begun: at a boundary the same on all of its ranks.

In: the job's torch. Out: a count that only rises, by which ranks name the same step, whatever clocks say.
"""

from __future__ import annotations

from types import ModuleType

from .job_signals import OF_TORCH


def collective_count(torch: ModuleType) -> int | None:
    """The count; None where there is no group, or it does not count."""
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    with OF_TORCH:  # looked up each time: a job may end its group, and it must not live on through us
        group = distributed.distributed_c10d._get_default_group()
        return int(group._get_sequence_number_for_group())
    return None
