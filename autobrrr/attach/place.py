"""A private folder inside the target's own mount namespace, for the bundle and the link's socket.

Made through `/proc/PID/root` with file descriptors from folder to folder, never through a link:
a path in somebody's container must not lead us elsewhere. Removed in every case.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from autobrrr.errors import CannotAttach, TargetGone

CANDIDATES = ("/tmp", "/dev/shm", "/var/tmp")
SOCKET = "link.sock"


class Place:
    """One private folder, open. Use as a context: it is removed at the end.

    Args:
        pid: The target.
        uid, gid: Who the folder must belong to: the target.
        token: Makes its name one that nobody can guess.

    Raises:
        CannotAttach: none of the candidates can be written.
        TargetGone: the target ended.
    """

    def __init__(
        self,
        pid: int,
        uid: int,
        gid: int,
        token: str,
        *,
        proc: Path = Path("/proc"),
        candidates: Sequence[str] = CANDIDATES,
    ) -> None:
        self._owner = (uid, gid) if uid != os.geteuid() else None
        self._name = f"autobrrr-{uid}-{token}"
        refusals = []
        for candidate in candidates:
            try:
                self._parent = _open_folder(str(proc / str(pid) / "root"), candidate)
            except (FileNotFoundError, ProcessLookupError) as error:
                refusals.append(f"{candidate}: {error.strerror}")
                continue
            except OSError as error:
                refusals.append(f"{candidate}: {error.strerror}")
                continue
            try:
                self._fd = self._make()
            except OSError as error:
                os.close(self._parent)
                refusals.append(f"{candidate}: {error.strerror}")
                continue
            self.path = f"{candidate}/{self._name}"
            return
        if not (proc / str(pid)).exists():
            raise TargetGone(f"process {pid} ended")
        raise CannotAttach(
            f"process {pid} sees no folder that can be written ({'; '.join(refusals)})",
            "mount a tmpfs on /tmp in its container, or start training with `autobrrr run -- ...`",
        )

    def _make(self) -> int:
        os.mkdir(self._name, 0o700, dir_fd=self._parent)
        try:
            fd = os.open(self._name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._parent)
            try:
                os.fchmod(fd, 0o700)
                if self._owner is not None:
                    os.fchown(fd, *self._owner)
                # A probe that the folder takes sockets: some network file systems do not.
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.bind(f"/proc/self/fd/{fd}/probe")
                os.unlink("probe", dir_fd=fd)
            except OSError:
                os.close(fd)
                raise
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(self._name, dir_fd=self._parent)
            raise
        return fd

    def write(self, name: str, data: bytes) -> None:
        """A file for the target to read."""
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
        with os.fdopen(fd, "wb") as file:
            if self._owner is not None:
                os.fchown(fd, *self._owner)
            file.write(data)

    def read(self, name: str, most_bytes: int = 8192) -> bytes | None:
        """A file that the target left; None where there is none."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(most_bytes)

    def listen(self) -> socket.socket:
        """A listening socket at `SOCKET`; connectable by the target's uid and root alone."""
        door = socket.socket(socket.AF_UNIX)
        try:
            # Through the descriptor: a path of any depth fits into the 107 bytes of an address.
            door.bind(f"/proc/self/fd/{self._fd}/{SOCKET}")
            os.chmod(SOCKET, 0o600, dir_fd=self._fd)
            if self._owner is not None:
                os.chown(SOCKET, *self._owner, dir_fd=self._fd)
            door.listen(2)
        except OSError:
            door.close()
            raise
        return door

    @property
    def socket_path(self) -> str:
        """The socket as the target sees it."""
        return f"{self.path}/{SOCKET}"

    def remove(self) -> None:
        """Take away all of it. Files only: nothing in it is a folder of ours."""
        for name in _names(self._fd):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._fd)
        os.close(self._fd)
        with contextlib.suppress(OSError):
            os.rmdir(self._name, dir_fd=self._parent)
        os.close(self._parent)

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def _open_folder(root: str, path: str) -> int:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in path.strip("/").split("/"):
        try:
            step = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        finally:
            os.close(fd)
        fd = step
    return fd


def _names(fd: int) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(fd)
    return []
