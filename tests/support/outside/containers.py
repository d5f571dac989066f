"""Containers made from namespaces: how a job is started in one, and a tool beside it or outside.

Each is what a runtime makes of the same words: own mounts and pids, a narrow set of capabilities, a filter
of system calls, another user.
"""

import os
import shutil
import sys
from pathlib import Path

# The words of `setpriv` for what Docker leaves a container's root.
DOCKER_CAPABILITIES = (
    "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,"
    "+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap"
)
PTRACE, PROCESS_VM_READV, PROCESS_VM_WRITEV = 101, 310, 311
# Defines a filter that answers some system calls with EPERM; the rest pass.
SECCOMP = """
import ctypes, struct
def refuse(*numbers, action=0x00050000 | 1):  # an error; 0x80000000 kills
    code = struct.pack("HBBI", 0x20, 0, 0, 0)
    for place, number in enumerate(numbers):
        code += struct.pack("HBBI", 0x15, len(numbers) - place, 0, number)
    code += struct.pack("HBBI", 6, 0, 0, 0x7FFF0000) + struct.pack("HBBI", 6, 0, 0, action)
    buffer = ctypes.create_string_buffer(code)
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
    program = Program(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program)) == 0
"""
# Installs one that refuses the calls of its first word, and becomes the rest.
_FILTER = f"""{SECCOMP}
import os, sys
refuse(*map(int, sys.argv[1].split(",")))
os.execv(sys.argv[2], sys.argv[2:])
"""


def mounts(*commands: str) -> tuple[str, ...]:
    """Runs commands of a shell, then becomes what follows."""
    return ("sh", "-c", " && ".join((*commands, 'exec "$0" "$@"')))


def unshared(*flags: str) -> tuple[str, ...]:
    """New namespaces; what is in them ends with `unshare`."""
    forks = ("-f", "--kill-child") if any("p" in flag for flag in flags if not flag.startswith("--")) else ()
    return ("unshare", *flags, *forks)


def with_capabilities(words: str) -> tuple[str, ...]:
    """Fewer capabilities, for good: `-all,+kill`."""
    return ("setpriv", f"--bounding-set={words}", "--inh-caps=-all")


def as_user(uid: int) -> tuple[str, ...]:
    """Another user, with no way back."""
    return (
        "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups",
        "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs",
    )  # fmt: skip


def refusing(*calls: int) -> tuple[str, ...]:
    """A filter that answers EPERM to these system calls, as older profiles do to ptrace."""
    return (sys.executable, "-c", _FILTER, ",".join(map(str, calls)))


IN = ("-m", "-p")  # flags of `nsenter`: the job's own mounts and pids
OWN_PROC = unshared("-m", "-p", "--mount-proc")
OWN_TMP = "mount -t tmpfs none /tmp"
READ_ONLY = "mount -o remount,ro,bind /"


def readable_python() -> tuple[str, ...]:
    """Commands that let every user run this interpreter, where it lies under a home that is closed."""
    base = Path(sys.base_prefix).resolve()
    closed = next((each for each in reversed(base.parents) if not each.stat().st_mode & 0o001), None)
    if closed is None:
        return ()
    return (
        f"mkdir /tmp/base && mount --rbind {base} /tmp/base",
        f"mount -t tmpfs -o mode=755 none {closed} && mkdir -p {base} && mount --move /tmp/base {base}",
    )


DOCKER = (*OWN_PROC, *mounts(OWN_TMP))
DOCKER_INSIDE = (*DOCKER, *with_capabilities(DOCKER_CAPABILITIES))
UID = 12345
UNPRIVILEGED = (*OWN_PROC, *mounts(OWN_TMP, *readable_python()), *as_user(UID))


def training_process(pid: int) -> int:
    """The process below one that no other is below."""
    while True:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not below:
            return pid
        pid = int(below[0])


def pid_inside(pid: int) -> int:
    """Its number in the innermost namespace."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    raise ProcessLookupError(pid)


def available() -> str:
    """Why none can be made here; "" where they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("unshare", "nsenter", "setpriv") if shutil.which(tool) is None]
    return f"needs {missing[0]}" if missing else ""
