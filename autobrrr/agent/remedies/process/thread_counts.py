"""How many threads work on the CPU: `threads.intra_op` inside one operator, `threads.inter_op` beside it.

On tiny tensors waking threads costs more than they bring: one thread is faster. On large ones
every physical core helps, a second thread on the same core seldom.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...live_torch.live_job import Job
from ...live_torch.torch_log import loaded
from ..registry import Option, Refused, Undo, remedy, switch


@remedy(
    "threads.intra_op",
    treats=("overhead", "compute", "memory"),
    reach="live",
    cls="rounding",
    doc="Set the number of threads inside one operator on the CPU.",
    targets=("torch.num_threads",),
    options=(Option(name="threads", kind="int", low=1, high=4096, doc="Default: the physical cores."),),
)
def intra_op(job: Job, options: Mapping[str, object]) -> Undo:
    wanted = int(str(options.get("threads") or physical_cores()))
    torch = job.torch
    if torch.get_num_threads() == wanted:
        raise Refused(f"the job uses {wanted} {'thread' if wanted == 1 else 'threads'} already")
    library: Any = loaded(torch, "libtorch_cpu.so")
    asked = getattr(library, "mkl_serv_get_dynamic", None)  # where torch has MKL inside
    adjusts = asked is not None and asked()
    back = switch(torch.get_num_threads, torch.set_num_threads, wanted)

    def undo() -> None:
        back()
        if adjusts:  # MKL might take fewer for a small product; with a number of threads torch forbids it
            library.mkl_serv_set_dynamic(1)

    return undo


@remedy(
    "threads.inter_op",
    treats=("overhead", "compute"),
    reach="relaunch",
    cls="bitwise",
    doc="Set how many operators may run beside each other, before the first one does.",
    targets=("torch.num_interop_threads",),
    options=(Option(name="threads", kind="int", default=1, low=1, high=4096, doc="Number of such threads."),),
)
def inter_op(job: Job, options: Mapping[str, object]) -> Undo:
    wanted = int(str(options.get("threads", 1)))
    torch = job.torch
    if torch.get_num_interop_threads() == wanted:
        raise Refused(f"the job uses {wanted} already")
    if job.optimizers or job.roots:
        raise Refused("the job has begun to train: torch takes no other number any more")
    try:
        torch.set_num_interop_threads(wanted)
    except RuntimeError as error:
        raise Refused(str(error).splitlines()[0][:160]) from None
    return lambda: None


def physical_cores(root: str = "/sys/devices/system/cpu") -> int:
    """Physical cores among the CPUs that this process may run on."""
    siblings = set()
    for cpu in os.sched_getaffinity(0):
        try:
            with open(f"{root}/cpu{cpu}/topology/thread_siblings_list", encoding="ascii") as file:
                siblings.add(file.read().strip())
        except OSError:
            siblings.add(str(cpu))
    return max(1, len(siblings))
