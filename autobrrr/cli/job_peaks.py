"""Peaks of this machine for a job's verdict: asked of the cache, measured once where it has none.

A measurement takes a second or two of as many cores as the job has threads (no more than it has CPUs), so
it runs before attaching; a job that sets its threads in its code shows them only afterwards.
"""

from __future__ import annotations

import os
from pathlib import Path

from autobrrr import paths
from autobrrr.cli.verb_arguments import narrate
from autobrrr.machine import procfs
from autobrrr.machine.kernel_text import number
from autobrrr.machine.processors import usable_cpus

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
PROC = Path("/proc")
MOST_THREADS = 4096


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


def threads_at_once(pid: int, threads: int | None) -> int | None:
    """Of so many threads of a process, those that have a CPU each."""
    cpus = usable_cpus(pid)
    return threads if threads is None or cpus is None else min(threads, cpus)


def make_sure_of_peaks(threads: int | None, cache: Path | None = None) -> None:
    """Measure the peaks at so many threads, unless the cache holds them."""
    from autobrrr.roofline.quick_peaks import quick_peaks  # not for --help: it brings msgspec records

    folder = cache or paths.cache_dir()
    if threads is None or quick_peaks(threads, folder, measure=False, say=narrate) is not None:
        return
    why = paths.why_unwritable(folder)
    if why is not None:
        narrate(
            f"what this machine can do is not measured, since it can't be kept ({why}): set XDG_CACHE_HOME"
        )
        return
    narrate(f"measuring what this machine can do with {threads} thread{'s' if threads > 1 else ''}, once")
    quick_peaks(threads, folder)
