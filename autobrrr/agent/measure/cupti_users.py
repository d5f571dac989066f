"""Who else uses CUPTI in a process: it serves one profiler at a time.

In: variables of the process, and its maps. Out: a profiler, or the variable that asks for one.
"""

from __future__ import annotations

from collections.abc import Mapping

VARIABLES = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
_BY_LIBRARY = {
    "libToolsInjection": "Nsight Systems",
    "libcuda-injection": "Nsight Compute",
    "libcuinj64": "CUDA's libcuinj64",
}


def cupti_user(environ: Mapping[str, str], maps: str) -> str | None:
    """Who uses CUPTI, or None."""
    names = [f"{name} is in the process" for library, name in _BY_LIBRARY.items() if library in maps]
    names += [f"{each} is set" for each in VARIABLES if environ.get(each)]
    return names[0] if names else None
