"""What a process takes from its environment at its start: another allocator, glibc's limits, CUDA's memory.

`run` sets the variables before the process exists; in it, the remedy looks whether they took effect.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Mapping
from functools import partial

from ...live_torch.live_job import Job
from ..registry import Option, Refused, Undo, remedy

LIBRARIES = ("jemalloc", "tcmalloc", "tcmalloc_minimal")
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
    "/usr/lib64",
    "/usr/lib",
    f"{sys.prefix}/lib",
)


def library_file(name: str, folders: tuple[str, ...] = FOLDERS) -> str | None:
    """The file of an allocator's shared library; None where it is not installed."""
    for folder in folders:
        found = sorted(glob.glob(f"{folder}/lib{name}.so*"))
        if found:
            return found[0]
    return None


def preloaded_library(
    options: Mapping[str, object], env: Mapping[str, str], folders: tuple[str, ...] = FOLDERS
) -> dict[str, str]:
    """LD_PRELOAD with the allocator in front.

    Raises:
        Refused: it is not installed.
    """
    name = str(options.get("library") or "jemalloc")
    file = library_file(name, folders)
    if file is None:
        raise Refused(f"lib{name} is not installed here")
    return {"LD_PRELOAD": ":".join([file, *filter(None, [env.get("LD_PRELOAD")])])}


_at_start = partial(remedy, reach="relaunch", cls="bitwise", undo_safe=False)


@_at_start(
    "host.allocator",
    treats=("memory", "overhead"),
    doc="Start the job with another allocator in place of glibc's.",
    targets=("malloc",),
    options=(
        Option(name="library", kind="choice", default="jemalloc", choices=LIBRARIES, doc="The allocator."),
    ),
    environment=preloaded_library,
)
def allocator(job: Job, options: Mapping[str, object]) -> Undo:
    name = str(options.get("library") or "jemalloc")
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        if f"/lib{name}." not in maps.read():
            raise Refused(f"lib{name} is not loaded: it takes a new start through autobrrr run")
    return lambda: None


MMAP_THRESHOLD, TRIM_THRESHOLD = "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"
MALLOC_SETTINGS = (MMAP_THRESHOLD, TRIM_THRESHOLD, "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")
TUNABLES, TUNABLE = "GLIBC_TUNABLES", "glibc.malloc."
ANY_THRESHOLD = (2, 35)  # glibc before it ignores a threshold above 32 MiB
KEPT_BYTES = (1 << 31) - 1


def _thresholds(options: Mapping[str, object]) -> dict[str, str]:
    mapped = int(str(options.get("mmap_threshold", 1 << 30)))
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if name != "glibc":
        raise Refused("this machine's C library is not glibc")
    if tuple(map(int, version.split(".")[:2])) < ANY_THRESHOLD:
        mapped = min(mapped, 32 << 20)
    return {MMAP_THRESHOLD: str(mapped), TRIM_THRESHOLD: str(options.get("trim_threshold", KEPT_BYTES))}


def _malloc_variables(options: Mapping[str, object], env: Mapping[str, str]) -> dict[str, str]:
    wanted = _thresholds(options)
    for name in MALLOC_SETTINGS:
        if name in env and env[name] != wanted.get(name):
            raise Refused(f"{name} is set to {env[name]} already")
    if TUNABLE in env.get(TUNABLES, ""):
        raise Refused(f"{TUNABLES} sets up glibc's allocator already")
    return wanted


# Above the mmap threshold a block is a mapping of its own: made, faulted in page by page and unmapped for
# each temporary tensor. Free bytes at the top of the heap above the trim threshold are given back.
@_at_start(
    "host.malloc",
    treats=("memory", "overhead", "underfilled"),
    doc="Let glibc keep large freed blocks for the next tensor instead of returning them to the system.",
    targets=("malloc",),
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
    environment=_malloc_variables,
)
def malloc(job: Job, options: Mapping[str, object]) -> Undo:
    if any(os.environ.get(name) != value for name, value in _thresholds(options).items()):
        raise Refused("glibc's limits are set at the start: it takes a new start through autobrrr run")
    return lambda: None


ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
ALSO_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")  # torch 2.9 reads the first of them instead


def _allocator_variable(options: Mapping[str, object], env: Mapping[str, str]) -> dict[str, str]:
    wanted = {ALLOCATOR: _allocator_settings(options)}
    for name in (ALLOCATOR, *ALSO_ALLOCATOR):
        if name in env and env[name] != wanted.get(name):
            raise Refused(f"{name} is set to {env[name]} already")
    return wanted


def _allocator_settings(options: Mapping[str, object]) -> str:
    settings = [f"expandable_segments:{bool(options.get('expandable_segments', True))}"]
    split = options.get("max_split_size_mb")
    if split is not None:
        settings.append(f"max_split_size_mb:{split}")
    return ",".join(settings)


@_at_start(
    "cuda.allocator",
    treats=("memory", "sync"),
    doc="Let the CUDA caching allocator grow its segments: less fragmentation, fewer calls of cudaMalloc.",
    targets=("cuda.allocator",),
    options=(
        Option(name="expandable_segments", kind="bool", default=True, doc="Segments that can grow."),
        Option(
            name="max_split_size_mb", kind="int", low=21, high=65536, doc="Larger blocks are never split."
        ),
    ),
    needs=("cuda",),
    unproven=True,
    environment=_allocator_variable,
)
def cuda_allocator(job: Job, options: Mapping[str, object]) -> Undo:
    _refuse_without_cuda(job)
    wanted = _allocator_settings(options)
    if os.environ.get(ALLOCATOR) != wanted or any(name in os.environ for name in ALSO_ALLOCATOR):
        raise Refused(f"{ALLOCATOR}={wanted} takes a new start through autobrrr run")
    return lambda: None


def _refuse_without_cuda(job: Job) -> None:
    if not job.torch.cuda.is_available():
        raise Refused("there is no CUDA device here")
