"""What the job's own source files say: those that it has imported, not the ones of installed packages.

In: the modules of the process. Out: the first file whose text holds a pattern.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from types import ModuleType

MOST_FILES = 500
MOST_BYTES = 2 << 20
INSTALLED = ("site-packages", "dist-packages")


def says(pattern: re.Pattern[str], modules: Mapping[str, ModuleType] | None = None) -> str | None:
    """The name of a file of the job's own that holds the pattern; None where none does."""
    for file in _files(sys.modules if modules is None else modules):
        try:
            if os.path.getsize(file) > MOST_BYTES:
                continue
            with open(file, encoding="utf-8", errors="replace") as text:
                if pattern.search(text.read()):
                    return os.path.basename(file)
        except OSError:
            continue
    return None


def _files(modules: Mapping[str, ModuleType]) -> list[str]:
    standard = os.path.dirname(os.__file__) + os.sep
    found: dict[str, None] = {}
    for module in list(modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or file.startswith(standard):
            continue
        if not any(f"{os.sep}{folder}{os.sep}" in file for folder in INSTALLED):
            found[file] = None
    return list(found)[:MOST_FILES]
