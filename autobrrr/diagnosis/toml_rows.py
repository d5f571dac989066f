"""Tables of sentences that lie beside the module that fills them in: `name.toml` beside `name.py`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@cache
def rows_beside(module: str) -> Mapping[str, Mapping[str, Any]]:
    """The table of a module, by its `__file__`."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
