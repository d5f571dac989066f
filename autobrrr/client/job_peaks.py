"""Peaks of this machine for a job's verdict: asked of the cache, measured where it has none.

Those of a busy machine are measured again when it is quieter.

They are measured with the job's own interpreter and torch, in a process of its own: ours may have no torch.

A measurement takes a second or two of as many cores as the job has threads (no more than it has CPUs), so
it runs before attaching; a job that sets its threads in its code shows them only afterwards. No verdict on
a GPU needs them: where a job may use one, they wait until the agent has seen the job.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autobrrr import paths
from autobrrr.attach import job_roles
from autobrrr.machine import process_maps, procfs
from autobrrr.machine.kernel_text import number
from autobrrr.machine.processors import usable_cpus

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
PROC = Path("/proc")
MOST_THREADS = 4096
SPIN_S = 0.1
OF_DEVICES = (b"libcuda.so", b"/dev/kfd", b"/dev/dri/render")  # mapped where a driver of a GPU is in use


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringPython:
    """An interpreter to measure with, its torch, and the folder that it finds it in; ours unless given."""

    program: str = sys.executable
    version: str | None = None
    site: str | None = None


def likely_threads(pid: int, proc: Path = PROC) -> int | None:
    """Threads that a process's torch starts with: its environment's, else the cores that it may use."""
    if not os.access(proc / str(pid) / "environ", os.R_OK):
        return None
    given = procfs.environ(pid, VARIABLES, proc)
    for name in VARIABLES:
        threads = (number(given[name].raw) or 0) if name in given else 0
        if 0 < threads <= MOST_THREADS:
            return threads
    return usable_cpus(pid)


def may_use_a_device(pid: int, proc: Path = PROC) -> bool:
    """Whether a driver of a GPU is mapped; a job that only asked for one trains on the CPU all the same."""
    return any(process_maps.mentions(pid, name, proc) for name in OF_DEVICES)


def threads_at_once(pid: int, threads: int | None) -> int | None:
    """Of so many threads of a process, those that have a CPU each."""
    cpus = usable_cpus(pid)
    return threads if threads is None or cpus is None else min(threads, cpus)


def measuring_python(pid: int, proc: Path = PROC) -> MeasuringPython | None:
    """The job's own interpreter and torch; None where they are not ours to run."""
    torch = job_roles.torch_of(pid, proc)
    if torch is None or torch.version is None:
        return None
    from autobrrr.attach.job_python import job_python  # not for --help

    python = job_python(pid, proc)
    if python is None:
        return None
    site = os.path.dirname(torch.folder.raw)
    return MeasuringPython(program=python.name, version=torch.version.raw, site=site)


def share_without_a_cpu(threads: int) -> float:
    """The share of the time in which so many threads would have no CPU, beside what others use."""
    import psutil  # not for --help

    cpus, began_s, began_cpu_s = psutil.cpu_count() or 1, time.monotonic(), time.thread_time()
    idle_s = -psutil.cpu_times().idle
    while (spent_s := time.monotonic() - began_s) < SPIN_S:
        pass
    ours_s = time.thread_time() - began_cpu_s
    others = cpus - (idle_s + psutil.cpu_times().idle + ours_s) / spent_s
    return float(max(1.0 - ours_s / spent_s, 1.0 - cpus / (others + threads)))


def make_sure_of_peaks(
    threads: int | None,
    job: MeasuringPython | None,
    say: Callable[[str], None],
    cache: Path | None = None,
    *,
    doing: Callable[[str], None] | None = None,
    patience_s: float | None = None,
    waits_now: Callable[[int], float] = share_without_a_cpu,
) -> None:
    """Measure the peaks at so many threads unless good ones are cached, by the job's torch, else with ours.

    Args:
        doing: Is told that they are measured; `say` where it is left out.
        patience_s: Importing torch included; None: as long as a cold disk may take.
        waits_now: How busy the machine is: the share of the time in which so many threads would have no CPU.
    """
    # Not for --help: these bring msgspec records.
    from autobrrr.diagnosis.thresholds import PEAKS_DISTURBED_AT
    from autobrrr.roofline.machine_identity import torch_version
    from autobrrr.roofline.quick_peaks import PATIENCE_S, quick_peaks
    from autobrrr.roofline.roofline_records import DISTURBED_AT

    folder, way = cache or paths.cache_dir(), job or MeasuringPython()
    if threads is None:
        return
    known = quick_peaks(threads, folder, way.program, False, version=way.version)
    if known is not None:
        # Useless peaks are replaced as soon as usable ones can be had, usable ones only by exact ones.
        unusable = (known.waited_share or 0.0) > PEAKS_DISTURBED_AT
        if not known.is_disturbed or waits_now(threads) > (PEAKS_DISTURBED_AT if unusable else DISTURBED_AT):
            return
    why = paths.why_unwritable(folder)
    if why is not None:
        say(f"this machine's peaks are not measured, since they can't be kept ({why}): set XDG_CACHE_HOME")
        return
    if way.version is None and torch_version() is None:
        return
    often = "once" if known is None else "again: it was busy"
    plural = "s" if threads > 1 else ""
    (doing or say)(f"measuring this machine's peaks with {threads} thread{plural}, {often}")
    most_s = PATIENCE_S if patience_s is None else patience_s
    kept = quick_peaks(threads, folder, way.program, version=way.version, site=way.site, patience_s=most_s)
    if kept is None:
        say("this machine's peaks could not be measured: the verdict does without them")
