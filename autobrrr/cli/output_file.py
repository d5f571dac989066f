"""Files that the user has named for what a verb finds: looked at before the work begins, written after it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from autobrrr.errors import AutobrrrError, UsageError


def check_places(*targets: Path | str | None) -> None:
    """Whether a file can come to be at each place that was named.

    Raises:
        UsageError: a folder is not there, or a file's name is a folder's.
    """
    for target in targets:
        if not target:
            continue
        path = Path(target).absolute()
        if not path.parent.is_dir():
            raise UsageError(f"the folder of {target} does not exist", "create it first")
        if path.is_dir():
            raise UsageError(f"{target} is a folder", "name a file in it")


def write_file(
    target: Path | str, text: str, hint: str = "", *, failure: type[AutobrrrError] = AutobrrrError
) -> None:
    """Write a file anew.

    Raises:
        AutobrrrError: it can't be written; as `failure`, with this hint.
    """
    is_new = not os.path.lexists(target)
    try:
        Path(target).write_bytes(text.encode())
    except OSError as error:
        if is_new:
            with suppress(OSError):
                os.unlink(target)
        raise failure(f"{target} could not be written: {error.strerror}", hint) from None
