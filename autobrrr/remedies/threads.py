"""`threads.intra_op`: how many threads one operator may use on the CPU.

On tiny tensors waking threads costs more than they bring: one thread is faster. On large ones
every physical core helps, a second thread on the same core seldom.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .registry import Option, Refused, Undo, remedy

if TYPE_CHECKING:
    from autobrrr.agent.job import Job


@remedy(
    "threads.intra_op",
    treats=("overhead", "compute", "memory"),
    reach="live",
    cls="rounding",
    doc="Set the number of threads inside one operator on the CPU.",
    targets=("torch.num_threads",),
    options=(
        Option(
            name="threads",
            kind="int",
            low=1,
            high=4096,
            doc="Number of threads; as many as there are physical cores where it is left out.",
        ),
    ),
)
def intra_op(job: Job, options: Mapping[str, object]) -> Undo:
    wanted = options.get("threads")
    if wanted is None:
        wanted = physical_cores()
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= 4096:
        raise Refused(f"threads = {wanted!r}: a whole number from 1 to 4096")
    before = job.torch.get_num_threads()
    if before == wanted:
        raise Refused(f"the job uses {wanted} {'thread' if wanted == 1 else 'threads'} already")
    set_threads: Callable[[int], None] = job.torch.set_num_threads
    current = job.torch.get_num_threads
    set_threads(wanted)

    def undo() -> None:
        # Somebody else may have changed it meanwhile: theirs then.
        if current() == wanted:
            set_threads(before)

    return undo


def physical_cores(root: str = "/sys/devices/system/cpu") -> int:
    """Physical cores among the CPUs that this process may run on."""
    allowed = os.sched_getaffinity(0)
    cores = set()
    for cpu in allowed:
        try:
            with open(f"{root}/cpu{cpu}/topology/thread_siblings_list") as siblings:
                cores.add(siblings.read().strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, len(cores))
