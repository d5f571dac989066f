"""`host.malloc`: glibc's allocator keeps large blocks instead of giving them back after every operator.

A block above the mmap threshold is a mapping of its own: made, page-faulted in and unmapped for each
temporary tensor; free bytes at the heap's top above the trim threshold are given back. glibc raises both by
itself, to 32 and 64 MiB at most. With both high, temporaries come from memory that the process has already.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...live_torch.live_job import Job
from ..registry import Option, Refused, Undo, remedy
from . import heap_holes, malloc_thresholds
from .glibc import M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, Libc, glibc

MOST_BYTES = 32 << 20  # where glibc's own raising of the threshold ends
KEPT_BYTES = (1 << 31) - 1
SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")
TUNABLES, TUNABLE = "GLIBC_TUNABLES", "glibc.malloc."
# With tensors of 36 MiB a step has 184,340 page faults before and after the undo, none with it, but for the
# first three steps or so each time.
SETTLES_STEPS = 3
_on = False


@remedy(
    "host.malloc",
    treats=("memory", "overhead", "underfilled"),
    reach="live",
    cls="bitwise",
    doc="Let glibc keep large freed blocks for the next tensor instead of returning them to the system.",
    targets=("malloc",),
    settles_steps=SETTLES_STEPS,
    leaves="where blocks lie in the heap: steps may take longer than before, by new page faults",
    options=(
        Option(
            name="mmap_threshold",
            kind="int",
            default=1 << 30,
            low=1 << 20,
            high=1 << 30,
            doc="Bytes from which a block is a mapping of its own.",
        ),
        Option(
            name="trim_threshold",
            kind="int",
            default=KEPT_BYTES,
            low=1 << 20,
            high=KEPT_BYTES,
            doc="Free bytes at the top of the heap above which they are given back.",
        ),
    ),
)
def malloc(job: Job, options: Mapping[str, object]) -> Undo:
    refuse_own_settings(os.environ)
    return keep_blocks(
        glibc(),
        int(str(options.get("mmap_threshold", 1 << 30))),
        int(str(options.get("trim_threshold", KEPT_BYTES))),
    )


def refuse_own_settings(environment: Mapping[str, str]) -> None:
    """Refuse where the user has set what can't be read back and put back.

    Raises:
        Refused: with the variable.
    """
    for name in SETTINGS:
        if name in environment:
            raise Refused(f"{name} stands in the environment: the thresholds are the user's own")
    if TUNABLE in environment.get(TUNABLES, ""):
        raise Refused(f"{TUNABLES} sets up glibc's allocator: the thresholds are the user's own")


def keep_blocks(libc: Libc, mmap_threshold: int, trim_threshold: int) -> Undo:
    """Raise both thresholds.

    The undo puts both back as they were, so that glibc goes on raising them by itself, and fills the holes
    that it has left in the heap. Thresholds that somebody has set meanwhile stay as they are.

    Raises:
        Refused: it is on already, the job has set thresholds itself, this glibc does not take the values, or
            what they are now can't be read.
    """
    global _on
    if _on:
        raise Refused("glibc keeps large blocks already")
    places = malloc_thresholds.find(libc)
    before = places.read(libc)
    if before.fixed:
        raise Refused(malloc_thresholds.SET_BY_JOB)
    natural_bytes = libc.hole_bytes()
    taken = libc.mallopt(M_MMAP_THRESHOLD, mmap_threshold) or libc.mallopt(M_MMAP_THRESHOLD, MOST_BYTES)
    if not taken or not libc.mallopt(M_TRIM_THRESHOLD, trim_threshold):
        places.put(libc, before)
        raise Refused("this glibc takes no other thresholds")
    ours = places.read(libc)
    heap_holes.open_again(libc)
    _on = True

    def undo() -> None:
        global _on
        if not _on:
            return
        _on = False
        if places.read(libc) == ours:
            heap_holes.fill(libc, natural_bytes)
            places.put(libc, before)

    return undo
