"""Where this process itself stands, as far as that decides what it may attach to.

Its capabilities, namespaces and filter of system calls, read from its own /proc; whether a job has the same
walls around it; and what a container must be given, in the words of the runtimes.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from autobrrr.machine import kernel_text, procfs
from autobrrr.machine.job_user import namespace
from autobrrr.machine.kernel_text import number

CAP_SYS_PTRACE = 1 << 19
# Inode numbers of the first namespaces: PROC_PID_INIT_INO and PROC_USER_INIT_INO of linux/proc_ns.h.
FIRST_PIDS, FIRST_USERS = "pid:[4026531836]", "user:[4026531837]"
ADD_SYS_PTRACE = (
    "start this container with --cap-add SYS_PTRACE (Kubernetes: securityContext.capabilities.add:"
    " [SYS_PTRACE], or kubectl debug --profile=general)"
)
LET_PTRACE_THROUGH = (
    "start this container with --cap-add SYS_PTRACE or --security-opt seccomp=unconfined (Kubernetes:"
    " securityContext.seccompProfile.type: Unconfined)"
)
SHARE_PIDS = (
    "start this container with --pid=container:NAME or --pid=host (Kubernetes: shareProcessNamespace: true,"
    " or kubectl debug --target=CONTAINER)"
)
GIVE_TMP = "start its container with --tmpfs /tmp (Kubernetes: an emptyDir volume at /tmp)"
_WALLS = ("mnt", "user", "pid", "net", "ipc", "uts", "cgroup", "time")  # namespaces
MOUNTS = "AUTOBRRR_MOUNTS"  # set in a process with its own mounts: the namespace it came from
_FILTERED = "2"  # Seccomp: in /proc/PID/status
# A request about no process: the kernel answers ESRCH, a filter that lets nobody trace something else.
_ASK = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.ptrace(2, 0, 0, 0); print(ctypes.get_errno())"
_NO_SUCH_PROCESS = "3"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPlace:
    """What this process is and sees.

    Attributes:
        capabilities: Mask of those in effect, within its own user namespace.
        in_pid_namespace, in_user_namespace: Whether these are other than the machine's first.
        sees_itself: Whether /proc is that of its own pid namespace.
        ptrace_filtered: Whether a filter of system calls refuses ptrace.
    """

    capabilities: int = 0
    in_pid_namespace: bool = False
    in_user_namespace: bool = False
    sees_itself: bool = True
    ptrace_filtered: bool = False

    @property
    def may_trace_others(self) -> bool:
        """Whether it has CAP_SYS_PTRACE; it counts for what its user namespace owns."""
        return bool(self.capabilities & CAP_SYS_PTRACE)


@functools.cache
def look(proc: Path = procfs.PROC) -> OwnPlace:
    """Look at this process, once. The filter is asked in a process of its own, which it may kill."""
    status = procfs.status(os.getpid(), proc)
    filtered = status.get("Seccomp") == _FILTERED
    return OwnPlace(
        capabilities=number(status.get("CapEff"), 16) or 0,
        in_pid_namespace=namespace("self", "pid", proc) not in (FIRST_PIDS, None),
        in_user_namespace=namespace("self", "user", proc) not in (FIRST_USERS, None),
        sees_itself=os.path.realpath(proc / "self") == str(proc / str(os.getpid())),
        ptrace_filtered=filtered and not _ptrace_answers(),
    )


def has_our_walls(pid: int, proc: Path = procfs.PROC) -> bool:
    """Whether a process is kept in as we are: by namespaces, a root, a filter, a label, capabilities.

    Only then is it no way out for it where we run a program that it chose, be it as its own user.
    """
    theirs, ours = (procfs.status(each, proc) for each in (pid, os.getpid()))
    try:
        roots = [os.stat(proc / str(each) / "root") for each in (pid, os.getpid())]
    except OSError:
        return False
    return (
        bool(theirs)
        and all(theirs.get(name) == ours.get(name) for name in ("Seccomp", "Seccomp_filters", "CapBnd"))
        and theirs.get("NoNewPrivs", "0") <= ours.get("NoNewPrivs", "0")
        and _label(pid, proc) == _label(os.getpid(), proc)
        and all(_namespace(pid, kind, proc) == _namespace(os.getpid(), kind, proc) for kind in _WALLS)
        and os.path.samestat(*roots)
    )


def _label(pid: int, proc: Path) -> str | None:
    """What AppArmor or SELinux calls it."""
    return kernel_text.text(proc / str(pid) / "attr" / "current", 4096)


def _namespace(pid: int, kind: str, proc: Path) -> str | None:
    came_from = os.environ.get(MOUNTS) if kind == "mnt" and pid == os.getpid() else None
    return came_from or namespace(pid, kind, proc)


def yama_scope(proc: Path) -> int | None:
    """The machine's ptrace_scope; None where it has none."""
    return number(kernel_text.text(proc / "sys" / "kernel" / "yama" / "ptrace_scope", 64))


def _ptrace_answers() -> bool:
    words = [sys.executable, "-I", "-S", "-c", _ASK]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() == _NO_SUCH_PROCESS
