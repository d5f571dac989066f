"""What a process is to a training job: a rank, a DataLoader worker, a launcher, or none of these.

In go pids and `/proc`; nothing is stopped or changed. The signs are the mapped torch library, the
command line, the environment of an exec'd child, caught signals and CPU time.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from autobrrr import folders
from autobrrr.machine import process_maps, procfs
from autobrrr.machine.kernel_text import number
from autobrrr.machine.procfs import PROC
from autobrrr.readable import Foreign

TORCH_LIBRARY = "libtorch_python.so"
WORKER_NAME = "pt_data_worker"
SPAWNED = "--multiprocessing-fork"  # in the command line of a spawned rank or loader worker
FORK_SERVER = "from multiprocessing.forkserver import main"  # of its command line; it has no torch itself
_VERSION = re.compile(rb"""^__version__(?:: \w+)? = ['"]([^'"\n]{1,100})['"]""", re.MULTILINE)
_VERSION_BYTES = 1 << 14
_LAUNCHERS = {"torchrun", "accelerate", "deepspeed", "horovodrun", "composer", "mpirun", "mpiexec", "srun"}
_LAUNCHER_MODULES = {
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.launcher",
    "accelerate.commands.launch",
    "accelerate",
    "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
}
# A worker of torch's DataLoader catches these four; `faulthandler` would catch SIGABRT too.
_WORKER_CATCHES, _ABORT = sum(1 << (number - 1) for number in (7, 8, 11, 15)), 1 << (6 - 1)
MOST_RANKS = 1 << 31
INIT = 1  # in a container it may be torchrun itself
SIZES = (  # all ranks of a job, and those on this machine
    ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
)
IDLE_SHARE, BUSY_SHARE, SAMPLE_S, IMPORT_S = 0.05, 0.2, 0.3, 30.0  # the last in CPU time


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFiles:
    """The torch that a process has mapped: its folder (in the process's own view) and version."""

    folder: Foreign
    version: Foreign | None


class Look:
    """All processes at one moment, and what was found out of them; for as long as one list is made.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self,
        proc: Path = PROC,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.proc = proc
        self.children = procfs.children(proc)
        self.maps_torch = functools.cache(lambda pid: maps_torch(pid, proc))
        self.trains = functools.cache(self._trains)
        self._clock, self._sleep = clock, sleep

    def _trains(self, pid: int) -> bool:
        """Whether it has torch and is neither a loader's worker nor a launcher."""
        return (
            self.maps_torch(pid)
            and not is_loader_worker(pid, self.proc, self)
            and not is_launcher_command(procfs.cmdline(pid, self.proc))
        )

    @functools.cached_property
    def cpu_shares(self) -> dict[int, float]:
        """The cores that processes keep busy; the first to ask waits for all."""
        known = [each for born in self.children.values() for each in born]
        before, began_ns = {each: _cpu_ns(each, self.proc) for each in known}, self._clock()
        self._sleep(SAMPLE_S)
        wall_ns = max(self._clock() - began_ns, 1)
        return {each: (_cpu_ns(each, self.proc) - before[each]) / wall_ns for each in known}


def maps_torch(pid: int, proc: Path = PROC) -> bool:
    """Whether a process has loaded torch; false where its maps are not for us."""
    return process_maps.mentions(pid, TORCH_LIBRARY.encode(), proc)


def torch_of(pid: int, proc: Path = PROC) -> TorchFiles | None:
    """The mapped torch; None where there is none, or where the maps are not for us."""
    try:
        mapped = process_maps.read(pid, proc) if maps_torch(pid, proc) else []
    except OSError:
        return None
    library = next((mapping for mapping in mapped if mapping.name == TORCH_LIBRARY), None)
    if library is None:
        return None
    folder = library.path.rsplit("/", 2)[0]
    try:
        named = folders.open_in(pid, f"{folder}/version.py", os.O_PATH, proc)
        with open(folders.reopened(named), "rb") as opened:
            found = _VERSION.search(opened.read(_VERSION_BYTES))
    except OSError:
        found = None
    version = Foreign(os.fsdecode(found.group(1))) if found else None
    return TorchFiles(folder=Foreign(folder), version=version)


def is_loader_worker(pid: int, proc: Path = PROC, look: Look | None = None) -> bool:
    """Whether this is a worker process of a torch DataLoader; who has asked for it must have torch too."""
    seen, found = procfs.stat(pid, proc), procfs.status(pid, proc)
    if seen is None:
        return False
    asker = asker_through(seen.ppid, proc)
    if not (maps_torch(asker, proc) if look is None else look.maps_torch(asker)):
        return False
    if seen.comm.raw == WORKER_NAME:
        return True
    caught = number(found.get("SigCgt"), 16) or 0
    return caught & _WORKER_CATCHES == _WORKER_CATCHES and not caught & _ABORT


def asker_through(parent: int, proc: Path = PROC) -> int:
    """The parent; of what a fork server has started, the process that the server works for."""
    serves = any(word.raw.startswith(FORK_SERVER) for word in procfs.cmdline(parent, proc))
    above = procfs.stat(parent, proc) if serves else None
    return parent if above is None else above.ppid


def is_compile_worker(pid: int, proc: Path = PROC) -> bool:
    """Whether this process only compiles for torch's inductor."""
    return any("_inductor" in word.raw and "compile_worker" in word.raw for word in procfs.cmdline(pid, proc))


def is_launcher_command(command: Sequence[Foreign]) -> bool:
    """Whether a command line is that of a known launcher."""
    words = [word.raw for word in command[:7]]
    for place, word in enumerate(words[:6]):
        if word == "-m" and place + 1 < len(words):
            return words[place + 1] in _LAUNCHER_MODULES
        if place <= 1 and word.rsplit("/", 1)[-1] in _LAUNCHERS:
            return True
    return False


def training_children(pid: int, proc: Path = PROC, look: Look | None = None) -> list[int]:
    """Descendants that train: with torch, and neither loader workers, compile workers nor launchers."""
    look = look or Look(proc)
    below = procfs.descendants(pid, proc, look.children)
    parents = {child: found.ppid for child in below if (found := procfs.stat(child, proc)) is not None}
    skipped: set[int] = set()
    training = []
    for child in below:
        if parents.get(child) in skipped or is_compile_worker(child, proc):
            skipped.add(child)
        elif look.trains(child):
            training.append(child)
    return training


def ranks_below(pid: int, proc: Path = PROC, look: Look | None = None) -> list[int]:
    """The ranks that a launcher started; empty where `pid` itself trains (or nothing does).

    A child with torch is not enough: an RL job's environment workers are such children too. A launcher is
    known by name, or gave its children a RANK of their own, or idles while they work. Init only adopts.
    """
    look = look or Look(proc)
    children = training_children(pid, proc, look)
    ranked = [child for child in children if _rank(child, proc) not in (None, _rank(pid, proc))]
    named = is_launcher_command(procfs.cmdline(pid, proc))
    if named or not look.maps_torch(pid):
        return (ranked or children) if named or pid != INIT else []
    if ranked:
        return ranked
    # A training parent idles too, while its new loader workers import torch.
    spent_ns = min(_cpu_ns(pid, proc), IMPORT_S * 1e9)
    spawned = {one for one in children if SPAWNED in [word.raw for word in procfs.cmdline(one, proc)]}
    ranks = [one for one in children if one not in spawned or _cpu_ns(one, proc) > spent_ns]
    busy = ranks and max(look.cpu_shares.get(one, 0.0) for one in ranks) >= BUSY_SHARE
    return children if busy and look.cpu_shares.get(pid, 0.0) < IDLE_SHARE else []


def rank_of(pid: int, proc: Path = PROC) -> int | None:
    """The rank in its environment."""
    found = _rank(pid, proc)
    rank = None if found is None else number(found.raw)
    return rank if rank is not None and 0 <= rank < MOST_RANKS else None


def job_of(pid: int, proc: Path = PROC) -> str | None:
    """What the ranks of one job have in common, as a short name; None where nothing can be told.

    The rendezvous of a launcher that sets one in their environment, else the process that started them.
    """
    shared = _rendezvous(pid, proc)
    if shared is None:
        seen = procfs.stat(pid, proc)
        parent = procfs.stat(seen.ppid, proc) if seen is not None and seen.ppid > 1 else None
        if seen is None or parent is None:
            return None
        shared = f"started by {seen.ppid} {parent.start_ticks}"
    return hashlib.blake2s(os.fsencode(shared), digest_size=6).hexdigest()


class JobSize(NamedTuple):
    """How many ranks a job has."""

    world: int
    here: int  # on this machine

    @property
    def elsewhere(self) -> int:
        return self.world - self.here


def size_of(pid: int, proc: Path = PROC) -> JobSize:
    """How many ranks the job has, by its environment; 1 if no variable says."""
    found = procfs.environ(pid, tuple(name for pair in SIZES for name in pair), proc)
    for names in SIZES:
        world, here = (number(found[name].raw) if name in found else None for name in names)
        if world is not None and here is not None and 0 < here <= world < MOST_RANKS:
            return JobSize(world, here)
    return JobSize(1, 1)


def ranks_beside(pid: int, proc: Path = PROC) -> list[int]:
    """Processes of the other ranks of a rank's job that its launcher started here, by their environment.

    Without a rendezvous: whoever has torch and started this process, and all else that it started.
    """
    seen, shared = procfs.stat(pid, proc), _rendezvous(pid, proc)
    if seen is None:
        return []
    if shared is None:
        parent, own = asker_through(seen.ppid, proc), {pid, *procfs.descendants(pid, proc)}
        if not maps_torch(parent, proc):
            return []
        return [each for each in (parent, *procfs.descendants(parent, proc)) if each not in own]
    below = procfs.descendants(seen.ppid, proc)
    return [
        each
        for each in below
        if each != pid and rank_of(each, proc) != rank_of(pid, proc) and _rendezvous(each, proc) == shared
    ]


def launched_ranks(pid: int, proc: Path = PROC) -> list[int]:
    """The ranks of the one job that a launcher started, by rank; empty where it is no such launcher.

    A shell above several jobs is none.
    """
    below = ranks_below(pid, proc)
    shared = {_rendezvous(each, proc) for each in below}
    if len(shared) != 1 or (
        shared == {None} and not is_launcher_command(procfs.cmdline(pid, proc)) and not maps_torch(pid, proc)
    ):
        return []
    ranks = {each: rank_of(each, proc) for each in below}
    return sorted(below, key=lambda each: (ranks[each] is None, ranks[each] or 0, each))


def _rendezvous(pid: int, proc: Path) -> str | None:
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
    found = procfs.environ(pid, ("RANK", *names), proc)
    if "RANK" not in found or "MASTER_PORT" not in found:
        return None
    return " ".join(found[name].raw if name in found else "-" for name in names)


def _rank(pid: int, proc: Path) -> Foreign | None:
    return procfs.environ(pid, ("RANK",), proc).get("RANK")


def _cpu_ns(pid: int, proc: Path) -> int:
    found = procfs.stat(pid, proc)
    return 0 if found is None else found.cpu_ns
