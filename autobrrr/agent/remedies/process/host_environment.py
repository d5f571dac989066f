"""What a process takes from its environment at its start: another allocator, glibc's limits, CUDA's memory.

`run` sets the variables before the process exists; in it, the remedy looks whether they are set.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Mapping
from functools import partial

from ...live_torch.live_job import Job
from ..registry import Environment, Option, Refused, Undo, remedy

FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
    "/usr/lib64",
    "/usr/lib",
    f"{sys.prefix}/lib",
)
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
    mapped = int(str(options.get("mmap_threshold", 1 << 30)))
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if name != "glibc":
        raise Refused("this machine's C library is not glibc")
    if tuple(map(int, version.split(".")[:2])) < ANY_THRESHOLD:
        mapped = min(mapped, 32 << 20)
    if TUNABLE in env.get(TUNABLES, ""):
        raise Refused(f"{TUNABLES} sets up glibc's allocator already")
    wanted = {MMAP_THRESHOLD: str(mapped), TRIM_THRESHOLD: str(options.get("trim_threshold", KEPT_BYTES))}
    return _unless_set(wanted, env, MALLOC)


def _cuda_variable(options: Mapping[str, object], env: Mapping[str, str]) -> dict[str, str]:
    settings = [f"expandable_segments:{bool(options.get('expandable_segments', True))}"]
    split = options.get("max_split_size_mb")
    settings += [] if split is None else [f"max_split_size_mb:{split}"]
    return _unless_set({CUDA[0]: ",".join(settings)}, env, CUDA)


def _unless_set(wanted: dict[str, str], env: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    for name in names:
        if name in env and env[name] != wanted.get(name):
            raise Refused(f"{name} is set to {env[name]} already")
    return wanted


def _look(environment: Environment, job: Job, options: Mapping[str, object]) -> Undo:
    """Raises Refused where the process was not started with these variables."""
    if environment is _cuda_variable and not job.torch.cuda.is_available():
        raise Refused("there is no CUDA device here")
    for name, value in environment(options, {}).items():
        if value not in os.environ.get(name, ""):
            raise Refused(f"{name} is read at the start: it takes a new start through autobrrr run")
    return lambda: None


def _at_start(environment: Environment, name: str, **about: object) -> None:
    entry = partial(remedy, name, reach="relaunch", cls="bitwise", undo_safe=False, environment=environment)
    entry(**about)(partial(_look, environment))  # type: ignore[arg-type]


_at_start(
    preloaded_library,
    "host.allocator",
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
)
# Above the mmap threshold a block is a mapping of its own: made, faulted in page by page and unmapped for
# each temporary tensor. Free bytes at the top of the heap above the trim threshold are given back.
_at_start(
    _malloc_variables,
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
)
_at_start(
    _cuda_variable,
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
)
