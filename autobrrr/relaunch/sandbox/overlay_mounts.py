"""Walls around one trial: what it writes goes into memory that vanishes with its processes.

In: folders that stay open. Out: this process, and all that it starts, in a mount namespace of its own in
which every writable file system is an overlay over a tmpfs, and read-only where there can be none.
Standard library only; runs in the keeper. Nothing has to be cleaned up: the mounts live as long as a
process of the trial does, whoever is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = (
    1024,
    2048,
    4096,
    16384,
    1 << 18,
    1 << 21,
)
FLAGS = {
    "nosuid": MS_NOSUID,
    "nodev": MS_NODEV,
    "noexec": MS_NOEXEC,
    "noatime": MS_NOATIME,
    "nodiratime": MS_NODIRATIME,
    "relatime": MS_RELATIME,
}
KERNEL_S_OWN = frozenset(
    [
        "proc",
        "sysfs",
        "devtmpfs",
        "devpts",
        "cgroup",
        "cgroup2",
        "mqueue",
        "debugfs",
        "tracefs",
        "securityfs",
        "pstore",
        "bpf",
        "configfs",
        "hugetlbfs",
        "fusectl",
        "efivarfs",
        "binfmt_misc",
        "autofs",
        "rpc_pipefs",
        "nsfs",
        "ramfs",
    ]
)
LEFT_ALONE = ("/proc", "/sys", "/dev")
# An overlay would hide the sockets of the system.
READ_ONLY = ("/run", "/boot", "/lost+found")
SHARED_MEMORY = "/dev/shm"
MOST_TARGETS = 200


class NoWalls(Exception):
    """The walls can't be raised here; the message says why. Nothing outside was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo."""

    at: str
    kind: str
    options: tuple[str, ...]

    @property
    def writable(self) -> bool:
        return "rw" in self.options and self.kind not in KERNEL_S_OWN

    @property
    def flags(self) -> int:
        return sum(FLAGS.get(option, 0) for option in self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upper:
    """Where what a trial writes under `covers` lies, as seen by the process that raised the walls.

    `known`: size and time of the files that lay there before, by relative path.
    """

    covers: str
    written: str
    known: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def mounts(text: str) -> list[Mount]:
    """The visible mounts, those nearer to the root first; of two at one place the later one.

    What was mounted inside a folder before another mount came over that folder can't be reached by anybody.
    """
    found: dict[str, Mount] = {}
    parents: dict[str, str] = {}
    for line in filter(None, text.split("\n")):
        fields, _, rest = line.partition(" - ")
        number, parent, _, _, place, options, *_ = fields.split()
        at = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), place)
        found[number] = Mount(at=at, kind=rest.split()[0], options=tuple(options.split(",")))
        parents[number] = parent
    shown: dict[str, str] = {}  # by place
    places = {mount.at for mount in found.values()}
    for at in sorted(places, key=lambda at: (at.count("/") if at != "/" else 0, at)):
        below = shown.get(
            max((place for place in shown if _below(at, [place.rstrip("/")])), key=len, default="")
        )
        left = [number for number, mount in found.items() if mount.at == at]
        while on_it := [
            each for each in left if parents[each] in (below, each) or parents[each] not in found
        ]:
            below = shown[at] = on_it[0]
            left.remove(below)
            if at == "/":
                break  # a process stays on its own root, whatever was mounted over that
    return [found[number] for number in shown.values()]


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
    *, size_bytes: int, folder: str, needed: Sequence[str], open_folders: Sequence[str]
) -> list[Upper]:
    """Enter the namespace and put overlays over everything that is writable.

    Args:
        size_bytes: What the trial may write in all.
        folder: An empty folder that the tmpfs is mounted on.
        needed: Folders that must be writable (the working folder, temporary files).
        open_folders: What is written there goes to the real folder.

    Raises:
        NoWalls: the kernel or its settings do not let us; the process must end.
    """
    try:
        return _raise(size_bytes, folder, needed, open_folders)
    except OSError as error:
        raise NoWalls(f"{error.strerror} ({error.filename or 'namespace'})") from None


def _raise(size_bytes: int, folder: str, needed: Sequence[str], open_folders: Sequence[str]) -> list[Upper]:
    own_paths = own_folders(needed)  # before: in the namespace all other owners are one
    _enter_namespace()
    _mount(None, "/", None, MS_REC | MS_PRIVATE, None)
    passages = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in open_folders]
    own = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in own_paths]
    seen = mounts(Path("/proc/self/mountinfo").read_text())
    visible = [mount.at for mount in seen]
    _mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size_bytes},mode=700")
    home = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    uppers: list[Upper] = []
    for mount in seen:
        if not mount.writable or _below(mount.at, LEFT_ALONE):
            continue
        read_only = _below(mount.at, READ_ONLY)
        for target in [] if read_only else _openable(mount.at, visible):
            if len(uppers) < MOST_TARGETS:
                uppers += _overlay(target, f"/proc/self/fd/{home}")
    for path, fd in own:
        if all(upper.covers != path for upper in uppers):
            uppers += _overlay(path, f"/proc/self/fd/{home}", f"/proc/self/fd/{fd}")
    if os.path.isdir(SHARED_MEMORY):
        shared = _cover_shared_memory(size_bytes, f"/proc/self/fd/{home}")
        uppers += shared if any(_below(path, [SHARED_MEMORY]) for path in needed) else []
    for path in needed:
        if not any(path == upper.covers or path.startswith(upper.covers + "/") for upper in uppers):
            raise NoWalls(f"no overlay is possible over {path}")
    for path, fd in passages:
        _mount(f"/proc/self/fd/{fd}", path, None, MS_BIND, None)
        os.close(fd)
    # What no overlay covers is shut; the overlays and passages are mounts of their own and stay open.
    for mount in reversed(seen):
        if mount.writable and not _below(mount.at, LEFT_ALONE) and not _covered(mount.at, uppers):
            _mount(None, mount.at, None, MS_REMOUNT | MS_BIND | MS_RDONLY | mount.flags, None)
    return uppers


def shut_all_but(
    *, size_bytes: int, folder: str, tree: str, read_only: Sequence[str], open_folders: Sequence[str]
) -> None:
    """Enter the namespace, put a copy in the place of a folder and make all else read-only.

    Args:
        size_bytes: What the trial may write into shared memory.
        folder: The working folder.
        tree: The copy of it.
        read_only: Folders below it, as relative paths, that are the real ones.
        open_folders: What is written there goes to the real folder.

    Raises:
        NoWalls: the kernel or its settings do not let us; the process must end.
    """
    try:
        _enter_namespace()
        _mount(None, "/", None, MS_REC | MS_PRIVATE, None)
        passages = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in open_folders]
        shown = [(path, os.open(f"{folder}/{path}", os.O_PATH | os.O_DIRECTORY)) for path in read_only]
        seen = mounts(Path("/proc/self/mountinfo").read_text())
        if os.path.isdir(SHARED_MEMORY):
            _cover_shared_memory(size_bytes)
        _mount(tree, folder, None, MS_BIND, None)
        for path, fd in shown:
            _mount(f"/proc/self/fd/{fd}", f"{folder}/{path}", None, MS_BIND | MS_REC, None)
        real = [f"{folder}/{path}" for path in read_only]
        inside = [
            mount
            for mount in mounts(Path("/proc/self/mountinfo").read_text())
            if _below(mount.at, real)
            or (mount.at.startswith(f"{SHARED_MEMORY}/") and not _below(mount.at, [folder]))
        ]
        for path, fd in passages:
            _mount(f"/proc/self/fd/{fd}", path, None, MS_BIND, None)
            os.close(fd)
        apart = [each for each in reversed(seen) if not _below(each.at, [folder, *LEFT_ALONE])]
        for mount in [*inside, *apart]:
            if mount.writable:
                _mount(None, mount.at, None, MS_REMOUNT | MS_BIND | MS_RDONLY | mount.flags, None)
    except OSError as error:
        raise NoWalls(f"{error.strerror} ({error.filename or 'namespace'})") from None


def copy_out(uppers: Iterable[Upper], destination: str, most_bytes: int) -> tuple[int, int]:
    """Copy the files that a trial wrote to a folder, under the names that they had.

    Returns:
        How many files, and their bytes. Links, sockets and byte code are left out.

    Raises:
        OSError: the folder can't be written, or there is more than `most_bytes`.
    """
    count = size = 0
    for upper in uppers:
        for here, folders, files in os.walk(upper.written):
            folders[:] = [name for name in folders if name != "__pycache__"]
            into = destination + upper.covers + here[len(upper.written) :]
            for name in files:
                found = os.lstat(f"{here}/{name}")
                before = upper.known.get(os.path.relpath(f"{here}/{name}", upper.written))
                if not stat.S_ISREG(found.st_mode) or before == (found.st_size, found.st_mtime_ns):
                    continue
                size += found.st_size
                if size > most_bytes:
                    raise OSError(27, "the trial wrote more than may be kept", destination)
                os.makedirs(into, exist_ok=True)
                with open(f"{here}/{name}", "rb") as source, open(f"{into}/{name}", "wb") as target:
                    while block := source.read(1 << 20):
                        target.write(block)
                count += 1
    return count, size


def _openable(at: str, visible: Sequence[str]) -> list[str]:
    if not os.path.isdir(at):
        return []  # a single file that is mounted: read-only
    try:
        return list(targets(at, visible))
    except PermissionError:
        return []


def own_folders(needed: Iterable[str]) -> list[str]:
    """The highest folder of each path that is this user's.

    It gets an overlay of its own: in a user namespace a folder of somebody else's on the way to it
    could not be copied up, for its owner has no name there.
    """
    found = []
    for path in needed:
        parts = Path(path).parts
        for length in range(2, len(parts) + 1):
            part = str(Path(*parts[:length]))
            if os.stat(part).st_uid == os.geteuid():
                if length > 2:
                    found.append(part)
                break
    return list(dict.fromkeys(found))


def _overlay(target: str, home: str, lower: str | None = None) -> list[Upper]:
    """One overlay; none where the file system refuses to be under one, or nobody may enter the folder."""
    number = len(os.listdir(home))  # what was refused has left its folders
    upper, work = f"{home}/{number}-upper", f"{home}/{number}-work"
    if re.search(r"[:,\\]", target) or not os.access(target, os.X_OK | os.R_OK):
        return []
    os.mkdir(upper)
    os.mkdir(work)
    found = os.stat(target)
    os.chmod(upper, stat.S_IMODE(found.st_mode))
    try:
        os.chown(upper, found.st_uid, found.st_gid)
    except OSError:
        os.chmod(upper, 0o777 if os.access(target, os.W_OK) else 0o755)
    try:
        _mount(
            "overlay",
            target,
            "overlay",
            0,
            f"lowerdir={lower or target},upperdir={upper},workdir={work},userxattr",
        )
    except OSError:
        return []
    return [Upper(covers=target, written=upper)]


def _cover_shared_memory(size_bytes: int, home: str | None = None) -> list[Upper]:
    """What the script makes there is seldom output of it; what lies there may be data that it reads.

    Before 2.34 glibc takes nothing but a tmpfs for shared memory; without, multiprocessing has no locks. So
    there each thing that lies there is shown in a new one, and can't be renamed or removed.

    Args:
        home: Where an overlay can have its folders; None: what lies there is shown as it is.
    """
    staged = sorted(os.listdir(SHARED_MEMORY))[:MOST_TARGETS]
    covered = [] if home is None else _overlay(SHARED_MEMORY, home)
    if covered and _any_is_shared_memory():
        return covered
    below = f"/proc/self/fd/{os.open(SHARED_MEMORY, os.O_PATH | os.O_DIRECTORY)}"
    _mount("tmpfs", SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size_bytes},mode=1777")
    for name in staged if covered or home is None else []:
        with contextlib.suppress(OSError):  # other jobs come and go there
            _show(f"{below}/{name}", f"{SHARED_MEMORY}/{name}")
    return []


def _any_is_shared_memory() -> bool:
    """Whether the C library takes any file system for shared memory."""
    try:
        library, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return True  # another one than glibc, which does not look
    return library != "glibc" or tuple(map(int, version.split(".")[:2])) >= (2, 34)


def _show(source: str, at: str) -> None:
    """A file, folder or link at another place."""
    found = os.lstat(source)
    kind = found.st_mode
    if stat.S_ISLNK(kind):
        os.symlink(os.readlink(source), at)
        with contextlib.suppress(OSError):  # the kernel follows a stranger's link there for nobody else
            os.chown(at, found.st_uid, found.st_gid, follow_symlinks=False)
        return
    if stat.S_ISDIR(kind):
        os.mkdir(at)
    elif stat.S_ISREG(kind):
        os.close(os.open(at, os.O_CREAT | os.O_EXCL))
    else:
        return
    _mount(source, at, None, MS_BIND, None)


def _enter_namespace() -> None:
    """A mount namespace; with a user namespace around it where we may not mount ourselves."""
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) == 0:
        return
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "user namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "wb") as file:
            file.write(text.encode())


def _mount(source: str | None, at: str, kind: str | None, flags: int, options: str | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [None if word is None else os.fsencode(word) for word in (source, at, kind, options)]
    if libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), at)


def _below(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _covered(at: str, uppers: Iterable[Upper]) -> bool:
    return any(at == upper.covers for upper in uppers)
