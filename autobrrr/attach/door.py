"""Root becomes the job's user here, before a folder is touched, and stays that user.

In: the pid that a command is about. Out: a command with that job's uid, gid, groups and capabilities, the
environment of its user, and one process that keeps the right to trace (`kept_tracer`). Nothing changes for
ordinary users, nor for root's own jobs.

We stay in our own mount namespace, since our program lies in it. Paths of the job are resolved in its root.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import stat
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from autobrrr import paths
from autobrrr.attach.ptrace import kept_tracer
from autobrrr.errors import CannotAttach
from autobrrr.machine import job_user, own_place, procfs
from autobrrr.machine.job_user import JobUser

# What a command needs of root's environment; the rest is nobody else's business.
_KEPT = {"PATH", "LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES", "TZ", "PYTHONPATH"}
_OWN = ("autobrrr", "autobrrr_tui")
_KEPT_PREFIXES = ("LC_", "AUTOBRRR_", "PYTHONDONTWRITE")
_NEW_MOUNTS, _BIND, _RECURSIVE, _SLAVE = 0x00020000, 0x1000, 0x4000, 0x80000


def go_through(pid: int, say: Callable[[str], object] = lambda line: None) -> int:
    """Become the job's user if that is somebody else, and say so; returns the pid.

    Raises:
        CannotAttach: this process may not, its program is not for that user, or the job is of two users.
    """
    if os.geteuid() != 0 or kept_tracer.is_kept():
        return pid
    user = job_user.of(pid)  # looked at once: it may become a program of root's meanwhile
    if user is None and procfs.owner(pid) is not None:
        raise CannotAttach(f"process {pid} runs with the rights of two users", "no training job does")
    apart = job_user.namespace(pid, "mnt") not in (None, job_user.namespace(os.getpid(), "mnt"))
    if user is None or (user.uid == 0 and (not apart or own_place.look().in_user_namespace)):
        return pid
    own_place.look()  # what root may do is asked of root
    kept_tracer.keep(user)
    needed = _program_folders()
    _open_the_way(needed, user)
    job_user.become(user, user.counting)
    closed = next((each for each in needed if not os.access(each, os.R_OK | os.X_OK)), None)
    if closed is not None:
        raise CannotAttach(
            f"autobrrr lies in {closed}, where uid {user.uid}, whose job that is, may not read",
            "install it where every user may, for example below /opt",
        )
    if user.uid != 0:
        _take_environment(user.uid)
        say(f"process {pid} is of uid {user.uid}: going on as that user; results: {paths.state_dir()}")
    return pid


def _program_folders() -> list[str]:
    """What this program is made of, and nothing else: its folders are opened to the job's user.

    None lies in another one. The working folder and those of PYTHONPATH may hold what that user may not see.
    """
    packages = (each for each in sys.path if os.path.basename(each) in ("site-packages", "dist-packages"))
    own = (os.path.dirname(spec.origin) for name in _OWN if (spec := find_spec(name)) and spec.origin)
    roots = (sys.prefix, sys.base_prefix, *own, *packages)
    named = {os.path.realpath(each) for each in roots if each}
    named |= {os.path.dirname(os.path.realpath(sys.executable)), os.path.abspath(sys.prefix)}
    found = sorted(each for each in named if os.path.isdir(each))
    return [each for each in found if not any(each.startswith(other + "/") for other in found)]


def _open_the_way(needed: list[str], user: JobUser) -> None:
    """Let them be reached below a home that is closed, as root's is, in mounts of this process's own.

    Over the home lies an empty folder, and in it each of them where it was.
    """
    closed = {each: above for each in needed if (above := _closed_above(each, user)) is not None}
    libc = ctypes.CDLL(None, use_errno=True)
    came_from = job_user.namespace(os.getpid(), "mnt")
    if not closed or libc.unshare(_NEW_MOUNTS) != 0:
        return
    os.environ[own_place.MOUNTS] = str(came_from)
    libc.mount(b"none", b"/", None, _RECURSIVE | _SLAVE, None)
    opened = {each: os.open(each, os.O_PATH | os.O_DIRECTORY) for each in closed}
    for above in set(closed.values()):
        libc.mount(b"none", os.fsencode(above), b"tmpfs", 0, b"mode=755")
    for each, fd in opened.items():
        os.makedirs(each, 0o755, exist_ok=True)
        libc.mount(b"/proc/self/fd/%d" % fd, os.fsencode(each), None, _BIND | _RECURSIVE, None)
        os.close(fd)


def _closed_above(path: str, user: JobUser) -> str | None:
    """The highest folder above a path that a user may not pass."""
    for above in reversed(Path(path).parents):
        found = os.stat(above)
        shift = 6 if found.st_uid == user.uid else 3 if found.st_gid in (user.gid, *user.groups) else 0
        if not found.st_mode >> shift & stat.S_IXOTH:
            return str(above)
    return None


def _take_environment(uid: int) -> None:
    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(_KEPT_PREFIXES):
            del os.environ[name]
    home, runtime = paths.home_of(uid), f"/run/user/{uid}"
    if home is not None:
        os.environ["HOME"] = str(home)
        os.environ["USER"] = os.environ["LOGNAME"] = pwd.getpwuid(uid).pw_name
    if os.path.isdir(runtime):
        os.environ["XDG_RUNTIME_DIR"] = runtime
