"""`host.affinity`: the process stays on some CPUs instead of wandering over all it may use.

Worth it where several ranks or jobs share a machine, or where its memory lies on one of several NUMA nodes.
Set for every thread there is; threads and loader workers that come later inherit it, until the undo.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...live_torch.live_job import Job
from ...wire.plain_number import whole_number
from ..registry import Option, Refused, Undo, remedy

_on = False
CHOICES = ("share", "cores", "node")
CPUS = "/sys/devices/system/cpu"


@remedy(
    "host.affinity",
    treats=("overhead", "memory", "compute"),
    reach="live",
    cls="bitwise",
    doc="Keep all threads of the process on some of its CPUs.",
    targets=("cpu.affinity",),
    only_named=True,
    options=(
        Option(
            name="cpus",
            kind="choice",
            default="cores",
            choices=CHOICES,
            doc="share: this rank's part of them; cores: one CPU of each core; node: those of one NUMA node.",
        ),
    ),
)
def affinity(job: Job, options: Mapping[str, object]) -> Undo:
    global _on
    if _on:
        raise Refused("the job's threads are kept on some of its CPUs already")
    kind = str(options.get("cpus", "cores"))
    allowed = os.sched_getaffinity(0)
    wanted = chosen(kind, allowed, os.environ)
    if wanted == allowed:
        raise Refused(f"the job runs on these {len(allowed)} CPUs already")
    before = _of_threads()
    for thread in before:
        _set(thread, wanted)
    before.update(_of_descendants())  # theirs stay as they are
    _on = True

    def undo() -> None:
        global _on
        if not _on:
            return
        _on = False
        for thread, cpus in {**_of_threads(), **_of_descendants()}.items():
            # Threads and processes that are younger than the remedy have inherited it.
            if cpus == wanted:
                _set(thread, before.get(thread, frozenset(allowed)))

    return undo


def chosen(
    kind: str, allowed: set[int], env: Mapping[str, str], root: str = "/sys/devices/system"
) -> set[int]:
    """The CPUs of a choice, among those that are allowed.

    Raises:
        Refused: there is nothing to choose from.
    """
    cpus = sorted(allowed)
    if kind == "share":
        ranks, rank = whole_number(env.get("LOCAL_WORLD_SIZE")), whole_number(env.get("LOCAL_RANK"))
        if ranks is None or rank is None or ranks < 2:
            raise Refused("the job has no other ranks on this machine to share its CPUs with")
        if ranks > len(cpus):
            raise Refused(f"{ranks} ranks share {len(cpus)} CPUs")
        each = len(cpus) // ranks
        return set(cpus[rank * each : (rank + 1) * each])
    if kind == "cores":
        firsts = one_of_each_core(allowed, f"{root}/cpu")
        if firsts == allowed:
            raise Refused("every CPU is a core of its own already")
        return firsts
    nodes = [_listed(_line(f"{root}/node/node{node}/cpulist") or "") & allowed for node in _nodes(root)]
    nodes = [node for node in nodes if node]
    if len(nodes) < 2:
        raise Refused("the CPUs of the job lie on one NUMA node already")
    rank = whole_number(env.get("LOCAL_RANK")) or 0
    return nodes[rank % len(nodes)]


def one_of_each_core(cpus: set[int], root: str = CPUS) -> set[int]:
    """The first CPU of each physical core."""
    first: dict[str, int] = {}
    for cpu in sorted(cpus):
        first.setdefault(_line(f"{root}/cpu{cpu}/topology/thread_siblings_list") or str(cpu), cpu)
    return set(first.values())


def _nodes(root: str) -> list[int]:
    try:
        names = os.listdir(f"{root}/node")
    except OSError:
        return []
    found = (whole_number(name[4:]) for name in names if name.startswith("node"))
    return sorted(node for node in found if node is not None)


def _listed(text: str) -> set[int]:
    """The numbers of a kernel list such as `0-3,8`."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low, high = whole_number(first), whole_number(last if dash else first)
        if low is not None and high is not None:
            found.update(range(low, high + 1))
    return found


def _of_threads(process: str = "self") -> dict[int, frozenset[int]]:
    """The CPUs of every thread of a process."""
    found = {}
    for thread in _threads(process):
        try:
            found[int(thread)] = frozenset(os.sched_getaffinity(int(thread)))
        except OSError:
            continue  # it has ended
    return found


def _of_descendants() -> dict[int, frozenset[int]]:
    """The CPUs of every thread of the processes that this one, and those, have started."""
    found: dict[int, frozenset[int]] = {}
    waiting = ["self"]
    while waiting:
        process = waiting.pop()
        for thread in _threads(process):
            for child in (_line(f"/proc/{process}/task/{thread}/children") or "").split():
                found.update(_of_threads(child))
                waiting.append(child)
    return found


def _threads(process: str) -> list[str]:
    try:
        return os.listdir(f"/proc/{process}/task")
    except OSError:
        return []  # it has ended


def _set(thread: int, cpus: set[int] | frozenset[int]) -> None:
    try:
        os.sched_setaffinity(thread, cpus)
    except OSError:
        pass  # it has ended


def _line(path: str) -> str | None:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
