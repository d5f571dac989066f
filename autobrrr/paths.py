"""Where files live. Takes the environment and the uid as arguments; touches nothing on import.

runtime: sockets (one per attached job); state: session logs; cache: calibrations.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from autobrrr.errors import AutobrrrError


def runtime_dir(env: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """Private folder for sockets: `$XDG_RUNTIME_DIR/autobrrr`, else `/tmp/autobrrr-UID`."""
    base = env.get("XDG_RUNTIME_DIR")
    if base and os.path.isabs(base) and os.path.isdir(base):
        return Path(base) / "autobrrr"
    return Path("/tmp") / f"autobrrr-{os.getuid() if uid is None else uid}"


def state_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Folder of session logs: `$XDG_STATE_HOME/autobrrr`, else `~/.local/state/autobrrr`."""
    return _xdg(env, "XDG_STATE_HOME", ".local/state")


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Folder of calibrations: `$XDG_CACHE_HOME/autobrrr`, else `~/.cache/autobrrr`."""
    return _xdg(env, "XDG_CACHE_HOME", ".cache")


def session_socket(pid: int, start_ticks: int, runtime: Path) -> Path:
    """Socket of the session of one job.

    `start_ticks` is field 22 of `/proc/PID/stat`: a pid that was used again gets another name.
    """
    return runtime / f"{pid}-{start_ticks}.sock"


def make_private(folder: Path, uid: int | None = None) -> Path:
    """Create `folder` with mode 0700, or make sure that it is ours and private.

    Raises:
        AutobrrrError: the folder is a link, somebody else's, or open to others.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.lstat(folder)
    owner = os.getuid() if uid is None else uid
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (owner, os.getuid()):
        raise AutobrrrError(
            f"{folder} is not a folder of uid {owner}",
            "remove it, or set XDG_RUNTIME_DIR to a private folder",
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise AutobrrrError(f"{folder} is open to other users", f"chmod 700 {folder}")
    return folder


def _xdg(env: Mapping[str, str], variable: str, fallback: str) -> Path:
    base = env.get(variable)
    if base and os.path.isabs(base):
        return Path(base) / "autobrrr"
    home = env.get("HOME") or os.path.expanduser("~")
    return Path(home) / fallback / "autobrrr"
