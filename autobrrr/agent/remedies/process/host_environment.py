"""What a process takes from its environment at its start: another allocator, glibc's limits, CUDA's memory.

`run` sets the variables before the process exists, or leaves the remedy out; in it, nothing is left to do.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Mapping
from functools import partial

from ...live_torch.live_job import Job
from ..registry import Option, Refused, Undo, remedy

FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/usr/lib64", "/usr/lib", f"{sys.prefix}/lib")
MMAP_THRESHOLD, TRIM_THRESHOLD = "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"
MALLOC = (MMAP_THRESHOLD, TRIM_THRESHOLD, "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")
TUNABLES, TUNABLE = "GLIBC_TUNABLES", "glibc.malloc."
ANY_THRESHOLD = (2, 35)  # glibc before it ignores a threshold above 32 MiB
KEPT_BYTES = (1 << 31) - 1
CUDA = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")  # of one setting


def preloaded_library(
    options: Mapping[str, object], env: Mapping[str, str], folders: tuple[str, ...] = FOLDERS
) -> dict[str, str]:
    """LD_PRELOAD with the allocator in front.

    Raises:
        Refused: it is not installed.
    """
    name = str(options.get("library") or "jemalloc")
    found = [file for folder in folders for file in sorted(glob.glob(f"{folder}/lib{name}.so*"))]
    if not found:
        raise Refused(f"lib{name} is not installed here")
    return {"LD_PRELOAD": ":".join([found[0], *filter(None, [env.get("LD_PRELOAD")])])}


def _malloc_variables(options: Mapping[str, object], env: Mapping[str, str]) -> dict[str, str]:
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if name != "glibc":
        raise Refused("this machine's C library is not glibc")
    old = tuple(map(int, version.split(".")[:2])) < ANY_THRESHOLD
    if TUNABLE in env.get(TUNABLES, ""):
        raise Refused(f"{TUNABLES} sets up glibc's allocator already")
    wanted = {MMAP_THRESHOLD: str(32 << 20 if old else 1 << 30), TRIM_THRESHOLD: str(KEPT_BYTES)}
    return _unless_set(wanted, env, MALLOC)


def _unless_set(wanted: dict[str, str], env: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    for name in names:
        if name in env and env[name] != wanted.get(name):
            raise Refused(f"{name} is set to {env[name]} already")
    return wanted


def _is_set(job: Job, options: Mapping[str, object]) -> Undo:
    return lambda: None


_at_start = partial(remedy, reach="relaunch", cls="bitwise")
_at_start(
    "host.allocator",
    environment=preloaded_library,
    treats=("memory", "overhead"),
    doc="Start the job with another allocator in place of glibc's.",
    targets=("malloc",),
    options=(
        Option(
            name="library",
            kind="choice",
            default="jemalloc",
            choices=("jemalloc", "tcmalloc", "tcmalloc_minimal"),
            doc="The allocator.",
        ),
    ),
)(_is_set)
# Above the mmap threshold a block is a mapping of its own: made, faulted in page by page and unmapped for
# each temporary tensor. Free bytes at the top of the heap above the trim threshold are given back.
_at_start(
    "host.malloc",
    environment=_malloc_variables,
    treats=("memory", "overhead", "underfilled"),
    doc="Let glibc keep large freed blocks for the next tensor instead of returning them to the system.",
    targets=("malloc",),
)(_is_set)
_at_start(
    "cuda.allocator",
    environment=lambda options, env: _unless_set({CUDA[0]: "expandable_segments:True"}, env, CUDA),
    treats=("memory", "sync"),
    doc="Let the CUDA caching allocator grow its segments: less fragmentation, fewer calls of cudaMalloc.",
    targets=("cuda.allocator",),
    needs=("cuda",),
    unproven=True,
)(_is_set)
