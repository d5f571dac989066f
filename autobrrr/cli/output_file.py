"""Files that a verb writes: looked at before the work begins, not after it."""

from __future__ import annotations

from pathlib import Path

from autobrrr.errors import UsageError


def check_place(target: str) -> None:
    """Whether a file can come to be there.

    Raises:
        UsageError: its folder is not there, or it is a folder itself.
    """
    path = Path(target).absolute()
    if not path.parent.is_dir():
        raise UsageError(f"the folder of {target} does not exist", "create it first")
    if path.is_dir():
        raise UsageError(f"{target} is a folder", "name a file in it")
