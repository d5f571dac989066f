"""Where files live. Takes the environment and the uid as arguments; touches nothing on import.

runtime: sockets (one per attached job); state: session logs; cache: calibrations.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path

from autobrrr.errors import AutobrrrError

TMP = Path("/tmp")


def runtime_dirs(env: Mapping[str, str] = os.environ) -> list[Path]:
    """Where the folder of our sockets may lie; the first that can be made private is used.

    `$XDG_RUNTIME_DIR/autobrrr`; without it `/tmp/autobrrr-UID`, and in case somebody else has taken that name
    a folder in the user's home, where nobody else can take one.
    """
    base = env.get("XDG_RUNTIME_DIR")
    if base and os.path.isabs(base) and os.path.isdir(base) and (os.geteuid() != 0 or is_roots(Path(base))):
        return [Path(base) / "autobrrr"]
    home = home_of(os.geteuid())
    spare = [] if home is None or home == Path("/") else [home / ".local/state/autobrrr/run"]
    return [_in_tmp(), *spare]


def runtime_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The first of `runtime_dirs` that is private, or can be made so.

    Raises:
        AutobrrrError: none can: what is wrong with the first.
    """
    errors = []
    for folder in runtime_dirs(env):
        try:
            return make_private(folder)
        except AutobrrrError as error:
            errors.append(error)
    raise errors[0]


def _in_tmp() -> Path:
    return TMP / f"autobrrr-{os.geteuid()}"


def state_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Folder of session logs: `$XDG_STATE_HOME/autobrrr`, else `~/.local/state/autobrrr`."""
    return _xdg(env, "XDG_STATE_HOME", ".local/state")


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Folder of calibrations: `$XDG_CACHE_HOME/autobrrr`, else `~/.cache/autobrrr`."""
    return _xdg(env, "XDG_CACHE_HOME", ".cache")


def temporary_dir(env: Mapping[str, str] = os.environ) -> Path:
    """For temporary files: `$TMPDIR`, of root only where nobody else decides what lies there, else `/tmp`."""
    chosen = Path(env.get("TMPDIR") or TMP)
    fits = chosen.is_absolute() and os.path.isdir(chosen) and os.access(chosen, os.W_OK | os.X_OK)
    return chosen if fits and (os.geteuid() != 0 or is_roots(chosen)) else TMP


def objection_to(folder: Path) -> str | None:
    """Why what lies at a path is no private folder of ours; None where it is one, or where nothing lies."""
    try:
        found = os.lstat(folder)
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a folder: something of uid {found.st_uid} lies in its place"
    if found.st_uid != os.geteuid():
        return f"{folder} belongs to uid {found.st_uid}, not to you"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return f"{folder} is open to other users"
    return None


def make_private(folder: Path) -> Path:
    """Create `folder` with mode 0700, or make sure that it is ours and private.

    Raises:
        AutobrrrError: the folder can't be made, is a link, somebody else's, or open to others.
    """
    try:
        make_closed(folder)
        why = objection_to(folder)
    except OSError as error:
        why = f"{folder} can't be made: {error.strerror}"
    if why is not None:
        raise AutobrrrError(
            why, f"look at it with ls -ld {folder}; remove it, or set XDG_RUNTIME_DIR to a private folder"
        )
    return folder


def make_closed(folder: Path) -> None:
    """Make a folder of ours, and those above it that are missing, for us alone.

    All folders of autobrrr are made so: where the variables name one place for two of them, either may come
    first.
    """
    if not folder.parent.exists():
        make_closed(folder.parent)
    if not os.path.lexists(folder):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        if os.lstat(folder).st_uid != os.geteuid():  # somebody was quicker
            raise PermissionError(errno.EPERM, "somebody else's", str(folder))


def why_unwritable(folder: Path) -> str | None:
    """Why nothing can be kept in a folder, which is made where it is not there; None where it can."""
    import tempfile  # not for --help

    try:
        make_closed(folder)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))  # a full disk takes an empty file
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return None


def _xdg(env: Mapping[str, str], variable: str, fallback: str) -> Path:
    base, uid = env.get(variable), os.geteuid()
    home = env.get("HOME") or home_of(uid)
    chosen = Path(base) if base and os.path.isabs(base) else None if home is None else Path(home) / fallback
    if chosen is not None and (is_roots if uid == 0 else _no_strangers)(chosen / "autobrrr"):
        return chosen / "autobrrr"
    home = home_of(uid)
    if home is not None:
        return home / fallback / "autobrrr"
    with contextlib.suppress(AutobrrrError):  # of a user without a home
        return make_private(_in_tmp()) / fallback
    return Path("/", fallback, "autobrrr")


def _no_strangers(folder: Path) -> bool:
    """Whether nobody else has taken a name where everybody may make one; what they put there is run."""
    try:
        found = (os.lstat(folder), os.stat(folder))
    except OSError:
        return True
    return all(each.st_uid in (0, os.geteuid()) and not _open_to_others(each) for each in found)


def _open_to_others(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and bool(found.st_mode & 0o022)


def home_of(uid: int) -> Path | None:
    """The home of a user, by the list of users; None where they have none."""
    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None
    return Path(home) if os.path.isdir(home) else None


def is_roots(path: Path) -> bool:
    """Whether root alone decides what lies at a path, as far as it is there; a link on the way is no yes.

    Under `sudo` the environment may still name folders of the user: whoever owns one on the way may put
    there what they like. What is not there yet somebody may make first, where all may.
    """
    whole, missing = path.absolute(), False
    for each in (whole, *whole.parents):
        try:
            found = os.lstat(each)
        except FileNotFoundError:
            missing = True
            continue
        except OSError:
            return False
        kept_apart = found.st_mode & stat.S_ISVTX and not missing
        if stat.S_ISLNK(found.st_mode) or found.st_uid != 0 or (_open_to_others(found) and not kept_apart):
            return False
        missing = False
    return True
