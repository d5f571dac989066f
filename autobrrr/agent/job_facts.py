"""What can be said of the job at once: versions, script, rank, threads. Touches no hook.

In: torch, the environment, the device of the parameters. Out: the payload of `hello` and of `facts`
(`records.JobFacts`): a job may be entered before it moves its model to a device, or joins other ranks.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from types import ModuleType

from .live_torch.compiled_code import CompiledCheck
from .live_torch.torch_types import Device
from .phases.sampled_step import cuda_in_use
from .wire.kernel_texts import whole_number


def job_facts(
    torch: ModuleType,
    boot: dict[str, object],
    train_tid: int,
    check: CompiledCheck,
    device: Device | None = None,
) -> dict[str, object]:
    """The job as it is now.

    Args:
        train_tid: 0: no step has been seen yet, the main thread is assumed.
        device: Of the parameters; None: none has been seen yet.
    """
    rank, world_size = rank_of(torch)
    threads = getattr(torch, "get_num_threads", None)
    return {
        "pid": os.getpid(),
        "python": platform.python_version(),
        "torch": str(getattr(torch, "__version__", "")) or None,
        "script": _script(),
        "argv": [str(arg) for arg in getattr(sys, "argv", [])][:64],
        "train_tid": train_tid or os.getpid(),
        "threads": int(threads()) if threads is not None else None,
        "cuda": cuda_in_use(),
        "device": None if device is None else device.type,
        "compiled": check.compiled([]),
        "rank": rank,
        "world_size": world_size,
        "bundle": "code" if boot.get("bundle") == "code" else "source",
        "method": str(boot.get("method", "ptrace")),
    }


def _script() -> str:
    argv = getattr(sys, "argv", None) or [""]
    return str(getattr(sys.modules.get("__main__"), "__file__", None) or argv[0])


def own_files(modules: Mapping[str, ModuleType]) -> list[str]:
    """Source files of these modules that are the user's own: not Python's, not installed."""
    others = (os.path.dirname(os.__file__) + "/", "/site-packages/", "/dist-packages/")
    files = [getattr(module, "__file__", None) for module in list(modules.values())]
    found = [file for file in files if isinstance(file, str) and file.endswith(".py")]
    return [file for file in dict.fromkeys(found) if not any(folder in file for folder in others)]


def package_folders(torch: ModuleType) -> list[str]:
    """Where torch and installed packages lie; never the script's own folder: its modules would run again."""
    installed = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    return [os.path.dirname(os.path.dirname(str(torch.__file__))), *installed]


def rank_of(torch: ModuleType) -> tuple[int | None, int | None]:
    """This process's rank and how many there are; None where it is not one of several."""
    group = sys.modules.get("torch.distributed")
    ready = getattr(group, "is_initialized", None)
    if group is not None and ready is not None and ready():
        return int(group.get_rank()), int(group.get_world_size())
    rank, size = (whole_number(os.environ.get(name)) for name in ("RANK", "WORLD_SIZE"))
    return (None, None) if rank is None or size is None else (rank, size)
