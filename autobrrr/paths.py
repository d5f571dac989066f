"""Where files live. Takes the environment and the uid as arguments; touches nothing on import.

runtime: sockets (one per attached job); state: session logs; cache: calibrations.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path

from autobrrr.errors import AutobrrrError

TMP = Path("/tmp")
MOST_LINKS = 40  # as the kernel follows


def runtime_dirs(env: Mapping[str, str] = os.environ, uid: int | None = None) -> list[Path]:
    """Where the folder of a user's sockets may lie; the first that can be made private is used.

    `$XDG_RUNTIME_DIR/autobrrr`; without it `/tmp/autobrrr-UID`, and in case somebody else has taken that name
    a folder in the user's home, where nobody else can take one.
    """
    owner = os.geteuid() if uid is None else uid
    base = env.get("XDG_RUNTIME_DIR")
    there = base if base and os.path.isabs(base) and os.path.isdir(base) else None
    if there is not None and (uid is not None or os.geteuid() != 0 or is_roots(Path(there))):
        return [Path(there) / "autobrrr"]
    home = home_of(owner)
    spare = [] if home is None or home == Path("/") else [home / ".local/state/autobrrr/run"]
    return [TMP / f"autobrrr-{owner}", *spare]


def runtime_dir(env: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """The first of `runtime_dirs` with which nothing is wrong; the very first where none is."""
    found = runtime_dirs(env, uid)
    owner = os.geteuid() if uid is None else uid
    return next((each for each in found if _could_be(each, owner)), found[0])


def _could_be(folder: Path, owner: int) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return True
    return stat.S_ISDIR(found.st_mode) and found.st_uid == owner and not found.st_mode & 0o077


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


def session_socket(pid: int, start_ticks: int, runtime: Path) -> Path:
    """Socket of the session of one job.

    `start_ticks` is field 22 of `/proc/PID/stat`: a pid that was used again gets another name.
    """
    return runtime / f"{pid}-{start_ticks}.sock"


def make_private(folder: Path, uid: int | None = None) -> Path:
    """Create `folder` with mode 0700, or make sure that it is a user's and private.

    Args:
        uid: Whose it must be: ours where None. For another's, call it as them (`folders.as_user`).

    Raises:
        AutobrrrError: the folder can't be made, is a link, somebody else's, or open to others.
    """
    elsewhere = "set XDG_RUNTIME_DIR to a private folder of yours"
    try:
        make_closed(folder)
        found = os.lstat(folder)
    except OSError as error:
        raise AutobrrrError(f"{folder} can't be made: {error.strerror}", elsewhere) from None
    owner = os.geteuid() if uid is None else uid
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
        raise AutobrrrError(
            f"{folder} is not a folder of uid {owner}: something of uid {found.st_uid} lies there",
            f"remove it, or {elsewhere}",
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise AutobrrrError(f"{folder} is open to other users", f"chmod 700 {folder}")
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
    base = env.get(variable)
    if base and os.path.isabs(base):
        chosen = Path(base)
    else:
        chosen = Path(env.get("HOME") or os.path.expanduser("~")) / fallback
    uid = os.geteuid()
    trusted = is_roots(chosen / "autobrrr") if uid == 0 else _no_strangers(chosen / "autobrrr", uid)
    if not trusted:
        chosen = (home_of(uid) or Path("/")) / fallback
    return chosen / "autobrrr"


def _no_strangers(folder: Path, uid: int) -> bool:
    """Whether nobody else has taken a name where everybody may make one; what they put there is run."""
    try:
        found = (os.lstat(folder), os.stat(folder))
    except OSError:
        return True
    return all(each.st_uid in (0, uid) and not _open_to_others(each) for each in found)


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
    """Whether root alone decides what lies at a path, as far as it is there.

    Under `sudo` the environment may still name folders of the user: whoever owns one on the way may put
    there what they like, a link too. What is not there yet somebody may make first, where all may. Links are
    followed one by one: one of root's may lead to one of somebody else's.
    """
    whole = path.absolute()
    for _ in range(MOST_LINKS):
        if not _is_kept_apart(whole):
            return False
        link = next((each for each in reversed((whole, *whole.parents)) if os.path.islink(each)), None)
        if link is None:
            return True
        try:
            whole = link.parent / os.readlink(link) / whole.relative_to(link)
        except OSError:
            return False
    return False


def _is_kept_apart(whole: Path) -> bool:
    """Whether none but root may put something else at a path, or on the way to it, as it is written."""
    missing = False
    for each in (whole, *whole.parents):
        try:
            found = os.lstat(each)
        except FileNotFoundError:
            missing = True
            continue
        except OSError:
            return False
        kept_apart = found.st_mode & stat.S_ISVTX and not missing
        if found.st_uid != 0 or (_open_to_others(found) and not kept_apart):
            return False
        missing = False
    return True
