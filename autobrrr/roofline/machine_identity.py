"""The machine that a calibration holds for: its processor, the cores that we may use, its last cache.

Read from `/proc` and `/sys` under a root that tests replace.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from autobrrr.machine.kernel_text import number

ASSUMED_CACHE_BYTES = 32 << 20  # where the kernel does not tell
MODEL = re.compile(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", re.MULTILINE)
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A processor as this process sees it."""

    name: str
    cores: int  # that we may run on
    last_cache_bytes: int

    @property
    def title(self) -> str:
        """The name that calibrations are kept under: fewer cores are another machine."""
        return f"{self.name}, {self.cores} cores"


def read_machine(root: Path = Path("/")) -> Machine:
    """The machine under a filesystem root."""
    try:
        found = MODEL.search((root / "proc/cpuinfo").read_text(errors="replace"))
    except OSError:
        found = None
    return Machine(
        name=found[1].strip() if found else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        last_cache_bytes=_last_cache_bytes(root),
    )


def accelerators(root: Path = Path("/")) -> list[str]:
    """GPUs as the kernel's drivers name them; tells calibrations apart without importing torch."""
    models = []
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        try:
            told = re.search(r"^Model:\s*(.+)$", file.read_text(errors="replace"), re.MULTILINE)
        except OSError:
            continue
        models.append(told[1].strip() if told else "NVIDIA GPU")
    return models or (["AMD GPU"] if (root / "dev/kfd").exists() else [])


def torch_version() -> str | None:
    """The torch that we would import, without importing it; None where there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def _last_cache_bytes(root: Path) -> int:
    sizes: dict[int, int] = {}
    for index in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level = number((index / "level").read_text())
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        known = number(size.rstrip("KMG"))
        if level is not None and known is not None:
            sizes[level] = known * UNITS.get(size[-1], 1)
    return sizes[max(sizes)] if sizes else ASSUMED_CACHE_BYTES
