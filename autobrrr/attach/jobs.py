"""What a process is to a training job: a rank, a DataLoader worker, a launcher, or none of these.

In go pids and `/proc`; nothing is stopped or changed. The signs are the mapped torch library, the
command line, the environment of an exec'd child, caught signals and CPU time.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach import maps, procfs
from autobrrr.attach.procfs import PROC

TORCH_LIBRARY = "libtorch_python.so"
WORKER_NAME = "pt_data_worker"
_VERSION = re.compile(r"""^__version__(?:: \w+)? = ['"]([^'"]+)['"]""", re.MULTILINE)
_LAUNCHERS = {"torchrun", "accelerate", "deepspeed", "horovodrun", "composer"}
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
_WORKER_CATCHES = sum(1 << (number - 1) for number in (7, 8, 11, 15))
_ABORT = 1 << (6 - 1)
IDLE_SHARE, BUSY_SHARE, SAMPLE_S = 0.05, 0.2, 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFiles:
    """The torch that a process has mapped: its folder (in the process's own view) and version."""

    folder: str
    version: str | None


def torch_of(pid: int, proc: Path = PROC) -> TorchFiles | None:
    """The mapped torch; None where there is none, or where the maps are not for us."""
    try:
        mapped = maps.read(pid, proc)
    except OSError:
        return None
    library = next((mapping for mapping in mapped if mapping.name == TORCH_LIBRARY), None)
    if library is None:
        return None
    folder = library.path.rsplit("/", 2)[0]
    try:
        text = (proc / str(pid) / "root" / folder.lstrip("/") / "version.py").read_text(errors="replace")
    except OSError:
        text = ""
    found = _VERSION.search(text)
    return TorchFiles(folder=folder, version=found.group(1) if found else None)


def is_loader_worker(pid: int, proc: Path = PROC) -> bool:
    """Whether this is a worker process of a torch DataLoader; its parent must have torch too."""
    seen, found = procfs.stat(pid, proc), procfs.status(pid, proc)
    if seen is None or not _maps_torch(seen.ppid, proc):
        return False
    if seen.comm == WORKER_NAME:
        return True
    caught = int(found.get("SigCgt", "0"), 16)
    return caught & _WORKER_CATCHES == _WORKER_CATCHES and not caught & _ABORT


def is_compile_worker(pid: int, proc: Path = PROC) -> bool:
    """Whether this process only compiles for torch's inductor."""
    return any("_inductor" in word and "compile_worker" in word for word in procfs.cmdline(pid, proc))


def is_launcher_command(words: list[str]) -> bool:
    """Whether a command line is that of a known launcher."""
    for place, word in enumerate(words[:6]):
        if word == "-m" and place + 1 < len(words):
            return words[place + 1] in _LAUNCHER_MODULES
        if place <= 1 and word.rsplit("/", 1)[-1] in _LAUNCHERS:
            return True
    return False


def training_children(pid: int, proc: Path = PROC) -> list[int]:
    """Descendants that train: with torch, and neither loader workers, compile workers nor launchers."""
    below = procfs.descendants(pid, proc)
    parents = {child: found.ppid for child in below if (found := procfs.stat(child, proc)) is not None}
    skipped: set[int] = set()
    training = []
    for child in below:
        if parents.get(child) in skipped or is_compile_worker(child, proc):
            skipped.add(child)
        elif (
            _maps_torch(child, proc)
            and not is_loader_worker(child, proc)
            and not is_launcher_command(procfs.cmdline(child, proc))
        ):
            training.append(child)
    return training


def ranks_below(
    pid: int,
    proc: Path = PROC,
    *,
    clock: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], object] = time.sleep,
) -> list[int]:
    """The ranks that a launcher started; empty where `pid` itself trains (or nothing does).

    A child with torch is not enough: an RL job's environment workers are such children too. A
    launcher is known by name, or gave its children a RANK of their own, or idles while they work.
    """
    children = training_children(pid, proc)
    if not children:
        return []
    own_rank = procfs.environ(pid, proc).get("RANK")
    ranked = [child for child in children if _rank(child, proc) not in (None, own_rank)]
    if is_launcher_command(procfs.cmdline(pid, proc)) or not _maps_torch(pid, proc):
        return ranked or children
    if ranked:
        return ranked
    before, began_ns = {each: _cpu_ns(each, proc) for each in (pid, *children)}, clock()
    sleep(SAMPLE_S)
    wall_ns = max(clock() - began_ns, 1)
    share = {each: (_cpu_ns(each, proc) - before[each]) / wall_ns for each in before}
    busy = [child for child in children if share[child] >= BUSY_SHARE]
    return children if busy and share[pid] < IDLE_SHARE else []


def rank_of(pid: int, proc: Path = PROC) -> int | None:
    """The rank in its environment."""
    text = _rank(pid, proc)
    return int(text) if text is not None and text.isdigit() else None


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
    return hashlib.blake2s(shared.encode(), digest_size=6).hexdigest()


def launched_ranks(pid: int, proc: Path = PROC) -> list[int]:
    """The ranks of the one job that a launcher started, by rank; empty where it is no such launcher.

    A shell above several jobs is none.
    """
    below = ranks_below(pid, proc)
    shared = {_rendezvous(each, proc) for each in below}
    if len(shared) != 1 or (shared == {None} and not _maps_torch(pid, proc)):
        return []
    ranks = {each: rank_of(each, proc) for each in below}
    return sorted(below, key=lambda each: (ranks[each] is None, ranks[each] or 0, each))


def _rendezvous(pid: int, proc: Path) -> str | None:
    found = procfs.environ(pid, proc)
    if "RANK" not in found or "MASTER_PORT" not in found:
        return None
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
    return " ".join(found.get(name, "-") for name in names)


def _rank(pid: int, proc: Path) -> str | None:
    return procfs.environ(pid, proc).get("RANK")


def _maps_torch(pid: int, proc: Path) -> bool:
    try:
        return TORCH_LIBRARY in (proc / str(pid) / "maps").read_text(errors="replace")
    except OSError:
        return False


def _cpu_ns(pid: int, proc: Path) -> int:
    found = procfs.stat(pid, proc)
    return 0 if found is None else found.cpu_ns
