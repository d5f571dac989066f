"""Walls around one trial: what it writes goes into memory that vanishes with its processes.

In: folders that stay open. Out: this process in a mount namespace of its own, in which every writable file
system is an overlay over a tmpfs, and read-only where there can be none; what it starts has IPC and processes
of its own. Standard library only; runs in the keeper. Nothing has to be cleaned up: the mounts live as long
as a process of the trial does, whoever is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
import socket
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
FLAGS = {"nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC}
FLAGS |= {"noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
# Where they lie outside of what is left alone.
KERNEL_S_OWN = ("autofs", "cgroup", "cgroup2", "nsfs", "ramfs", "rpc_pipefs")
LEFT_ALONE = ("/proc", "/sys", "/dev")
# An overlay would hide the sockets of the system.
READ_ONLY = ("/run", "/boot", "/lost+found")
SHARED_MEMORY = "/dev/shm"
MOST_TARGETS = 200
PR_CAPBSET_DROP = 24
# Of root: to take an overlay off, to open a file past it by its handle, to make a disk, to trace the init, …
BEYOND_WALLS = {"dac_read_search": 2, "sys_module": 16, "sys_rawio": 17, "sys_ptrace": 19, "sys_admin": 21}
BEYOND_WALLS |= {"sys_boot": 22, "mknod": 27}
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
libc = ctypes.CDLL(None, use_errno=True)

Uppers = dict[str, str]
"""Covered folder to where what a trial writes there lies, as seen by the process that raised the walls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo."""

    number: str
    at: str
    kind: str
    options: tuple[str, ...]

    @property
    def is_writable(self) -> bool:
        return "rw" in self.options and self.kind not in KERNEL_S_OWN

    @property
    def is_seen(self) -> bool:
        """No other mount covers it, or a folder on the way to it."""
        try:
            fd = os.open(self.at, os.O_PATH)
        except OSError:
            return False  # nor does the trial get there
        try:
            return f"mnt_id:\t{self.number}\n" in Path(f"/proc/self/fdinfo/{fd}").read_text()
        finally:
            os.close(fd)

    @property
    def flags(self) -> int:
        return sum(FLAGS.get(option, 0) for option in self.options)


def mounts(text: str) -> list[Mount]:
    """The mounts, those nearer to the root first."""
    found = []
    for line in filter(None, text.split("\n")):
        fields, _, rest = line.partition(" - ")
        number, _, _, _, place, options, *_ = fields.split()
        at = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), place)
        found.append(Mount(number=number, at=at, kind=rest.split()[0], options=tuple(options.split(","))))
    return sorted(found, key=lambda mount: (mount.at.count("/") if mount.at != "/" else 0, mount.at))


def targets(folder: str, mounted: Iterable[str]) -> Iterator[str]:
    """The highest folders of a file system without a mount inside; an overlay may lie over each."""
    others = [at for at in mounted if at != folder]
    inside = [at for at in others if at.startswith(folder.rstrip("/") + "/")]
    if not inside and folder != "/":
        yield folder
        return
    with os.scandir(folder) as entries:
        below = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    for path in below:
        if path not in others and path not in LEFT_ALONE and path not in READ_ONLY:
            yield from targets(path, others)


def raise_walls(
    *, size_bytes: int, folder: str, needed: Sequence[str], open_folders: Sequence[str], network: bool = True
) -> Uppers:
    """Enter the namespaces and put overlays over everything that is writable.

    Args:
        size_bytes: What the trial may write in all.
        folder: An empty folder that the tmpfs is mounted on.
        needed: Folders that must be writable (the working folder, temporary files).
        open_folders: What is written there goes to the real folder.
        network: Whether what is started reaches more than the machine's loopback, of which it gets its own.

    Raises:
        OSError: the kernel or its settings do not let us; the process must end. Nothing outside was changed.
    """
    own_paths = own_folders(needed)  # before: in the namespace all other owners are one
    _enter_namespaces(network)
    _mount(None, "/", None, MS_REC | MS_PRIVATE, None)
    opened = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in {*open_folders, *own_paths, folder}}
    here = {path: f"/proc/self/fd/{fd}" for path, fd in opened.items()}
    seen = [each for each in mounts(Path("/proc/self/mountinfo").read_text()) if each.is_seen]
    _mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size_bytes},mode=700")
    home = f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY)}"
    uppers = _overlays(seen, home)
    shared = _cover_shared_memory(size_bytes, home)
    uppers |= shared if any(_below(path, [SHARED_MEMORY]) for path in needed) else {}
    for path in own_paths:
        if path not in uppers:
            uppers |= _overlay(path, home, here[path])
    for path in needed:
        if not _below(path, uppers):
            raise OSError(errno.EINVAL, f"no overlay is possible over {path}")
    for path in open_folders:
        _mount(here[path], path, None, MS_BIND, None)
    for fd in opened.values():
        os.close(fd)
    # What no overlay covers is shut; the overlays and passages are mounts of their own and stay open.
    for mount in reversed(seen):
        if mount.is_writable and not _below(mount.at, LEFT_ALONE) and mount.at not in uppers:
            _mount(None, mount.at, None, MS_REMOUNT | MS_BIND | MS_RDONLY | mount.flags, None)
    return uppers


def become_init() -> None:
    """In the first process after the walls were raised: `/proc` shows its own processes alone.

    Raises:
        OSError: this kernel does not let us.
    """
    _unshare(CLONE_NEWNS)
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)
    for capability in BEYOND_WALLS.values():
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def copy_out(uppers: Mapping[str, str], destination: str) -> int:
    """Copy the files that a trial wrote to a folder, under the names that they had.

    Returns:
        How many files. Links, sockets and byte code are left out.

    Raises:
        OSError: the folder can't be written.
    """
    count = 0
    for covered, written in uppers.items():
        for file in Path(written).rglob("*"):
            if "__pycache__" not in file.parts and stat.S_ISREG(file.lstat().st_mode):
                into = Path(destination + covered, file.relative_to(written))
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, into)
                count += 1
    return count


def own_folders(needed: Iterable[str]) -> list[str]:
    """The highest folder of each path that is this user's.

    It gets an overlay of its own: in a user namespace a folder of somebody else's on the way to it
    could not be copied up, for its owner has no name there.
    """
    ways = [[*reversed(Path(path).parents), Path(path)][1:] for path in needed]
    highest = [next((each for each in way if each.stat().st_uid == os.geteuid()), None) for way in ways]
    return list(dict.fromkeys(str(each) for each in highest if each is not None and len(each.parts) > 2))


def _overlays(seen: Sequence[Mount], home: str) -> Uppers:
    """Over all writable folders in which no other mount is."""
    visible, apart = [mount.at for mount in seen], (*LEFT_ALONE, *READ_ONLY)
    uppers: Uppers = {}
    for mount in seen:
        # A single file that is mounted is read-only.
        if not mount.is_writable or _below(mount.at, apart) or not os.path.isdir(mount.at):
            continue
        with contextlib.suppress(PermissionError):
            for target in targets(mount.at, visible):
                uppers |= _overlay(target, home) if len(uppers) < MOST_TARGETS else {}
    return uppers


def _overlay(target: str, home: str, lower: str | None = None) -> Uppers:
    """One overlay; none where the file system refuses to be under one, or nobody may enter the folder."""
    number = len(os.listdir(home))  # what was refused has left its folders
    upper, work = f"{home}/{number}-upper", f"{home}/{number}-work"
    if re.search(r"[:,\\]", target) or not os.access(target, os.X_OK | os.R_OK):
        return {}
    os.mkdir(upper)
    os.mkdir(work)
    found = os.stat(target)
    os.chmod(upper, stat.S_IMODE(found.st_mode))
    try:
        os.chown(upper, found.st_uid, found.st_gid)
    except OSError:
        os.chmod(upper, 0o777 if os.access(target, os.W_OK) else 0o755)
    options = f"lowerdir={lower or target},upperdir={upper},workdir={work},userxattr"
    try:
        _mount("overlay", target, "overlay", 0, options)
    except OSError:
        return {}
    return {target: upper}


def _cover_shared_memory(size_bytes: int, home: str) -> Uppers:
    """What lies there may be data that the script reads: an overlay, too.

    Before 2.34 glibc takes nothing but a tmpfs for shared memory, without which multiprocessing has no locks.
    There it gets an empty one.
    """
    if not os.path.isdir(SHARED_MEMORY):
        return {}
    library, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    any_will_do = library != "glibc" or tuple(map(int, version.split(".")[:2])) >= (2, 34)
    if any_will_do and (covered := _overlay(SHARED_MEMORY, home)):
        return covered
    _mount("tmpfs", SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size_bytes},mode=1777")
    return {}


def _enter_namespaces(network: bool) -> None:
    """Of mounts, IPC, later processes; and of users, where we may not mount ourselves."""
    uid, gid = os.geteuid(), os.getegid()
    flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | (0 if network else CLONE_NEWNET)
    try:
        _unshare(flags)
    except OSError:
        _unshare(CLONE_NEWUSER | flags)
        maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
        for name, text in maps.items():
            Path(f"/proc/self/{name}").write_text(text)
    if not network:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


def _unshare(flags: int) -> None:
    _check(libc.unshare(flags), "user namespace" if flags & CLONE_NEWUSER else "namespace")


def _mount(source: str | None, at: str, kind: str | None, flags: int, options: str | None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, at, kind, options)]
    _check(libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), at)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)
