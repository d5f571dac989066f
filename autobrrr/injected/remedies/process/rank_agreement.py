"""All ranks or none: ranks whose gradients lie in different buckets would add up what does not belong.

A rank may be without an agent. In: the construction that is under way, and what is to change in it. Out:
nothing where every rank of its group asks for the same, else a refusal, on every rank. Asked through the
store at which the ranks have met; the first answer that stands there is everybody's.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping

from ...live_torch.live_job import Job
from ..registry import Refused

PATIENCE_S = 60.0
LOOK_S = 0.02
YES, NO = "all", "some"
_ASKED: Counter[str] = Counter()


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
        raise Refused("the ranks of a device mesh are not asked whether all of them change it")
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
