"""How modules of ours are started as processes: from where this one lies, whatever folder we stand in.

`python -m` looks into the working folder first. That may be somebody else's, who would run there as we.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def command(module: str, *words: str) -> list[str]:
    """The words that start a module. Before Python 3.11 it must be started in a folder that is ours."""
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *safe, "-m", module, *words]


def environment() -> dict[str, str]:
    """Our environment, with this package found from any folder."""
    inherited = [
        os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry
    ]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *inherited])}
