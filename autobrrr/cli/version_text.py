"""What `autobrrr --version` prints: all that a bug report needs of this installation and machine."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path

from autobrrr import __version__

PACKAGES = ("torch", "numpy", "msgspec", "optuna", "textual", "psutil", "nvidia-ml-py")


def version_text(root: Path = Path("/")) -> str:
    """One thing a line, the program's own version first."""
    import psutil  # not for --help

    from autobrrr.roofline.machine_identity import accelerators, read_machine

    found = {name: _version(name) for name in PACKAGES}
    here = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    missing = ", ".join(name for name, version in found.items() if version is None)
    lines = [
        f"autobrrr {__version__} in {Path(__file__).resolve().parents[2]}",
        f"python   {platform.python_version()} ({sys.executable})",
        f"packages {here}" + (f"; not installed: {missing}" if missing else ""),
        f"system   {platform.platform()}",
        f"machine  {read_machine(root).title}, {psutil.virtual_memory().total / 2**30:.0f} GiB; "
        f"GPU: {', '.join(accelerators(root)) or 'none'}",
    ]
    return "\n".join(lines)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
