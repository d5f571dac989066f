"""A private folder inside the target's own mount namespace, for the bundle and the link's socket.

Made through `/proc/PID/root`, from descriptor to descriptor. Removed in every case: by whoever made it, else
by the agent, else by whoever attaches next.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from autobrrr import folders
from autobrrr.errors import CannotAttach, TargetGone
from autobrrr.machine import own_place

CANDIDATES = ("/tmp", "/dev/shm", "/var/tmp")
SOCKET = "link.sock"


class TargetFolder:
    """One private folder, open; to be closed, which takes it away.

    While it is open its lock is held: one without a holder was left by an attach that was killed.

    Attributes:
        path, socket_path: Where the target sees it, and its socket.
        door: A listening socket at `SOCKET`, for the target's user and root alone.

    Raises:
        CannotAttach: none of the candidates can be written.
        TargetGone: the target ended.
    """

    def __init__(
        self, pid: int, *, proc: Path = Path("/proc"), candidates: Sequence[str] = CANDIDATES
    ) -> None:
        self._pid, self._name = pid, f"autobrrr-{os.geteuid()}-{secrets.token_hex(8)}"
        refusals = []
        for candidate in candidates:
            try:
                self._parent = folders.open_in(pid, candidate, os.O_RDONLY | os.O_DIRECTORY, proc)
                try:
                    self._fd, self.door = _made(Path(f"/proc/self/fd/{self._parent}", self._name))
                except OSError:
                    os.close(self._parent)
                    raise
            except OSError as error:
                refusals.append(f"{candidate}: {error.strerror}")
                continue
            self.path = f"{candidate}/{self._name}"
            self.socket_path = f"{self.path}/{SOCKET}"
            return
        if not (proc / str(pid)).exists():
            raise TargetGone(f"process {pid} ended")
        raise CannotAttach(
            f"process {pid} sees no folder that can be written ({'; '.join(refusals)})",
            f"{own_place.GIVE_TMP}, or start training with `autobrrr run -- ...`",
        )

    def write(self, name: str, data: bytes) -> None:
        """A file for the target to read. Raises CannotAttach."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=self._fd), "wb") as file:
                file.write(data)
        except OSError as error:
            raise CannotAttach(
                f"{self.path}, as process {self._pid} sees it, can't be written: {error.strerror}",
                f"make room in {os.path.dirname(self.path)} and try again",
            ) from None

    def said(self, name: str) -> str | None:
        """The text of a link that the target left: see `load_failure`; None where there is none."""
        try:
            return os.readlink(name, dir_fd=self._fd)
        except OSError:
            return None

    def close(self) -> None:
        """Take away all of it."""
        self.door.close()
        shutil.rmtree(f"/proc/self/fd/{self._parent}/{self._name}", ignore_errors=True)
        os.close(self._fd)
        os.close(self._parent)


def _made(folder: Path) -> tuple[int, socket.socket]:
    """A new folder whose lock is held, with a socket that listens in it.

    Raises:
        OSError: it can't be made, or takes no sockets, as some file systems of networks do not.
    """
    fd = folders.make_held(folder)
    try:
        return fd, folders.listen(Path(f"/proc/self/fd/{fd}", SOCKET), 2)
    except OSError:
        os.close(fd)
        folders.remove_unheld(folder)
        raise


def sweep(pid: int, proc: Path = Path("/proc"), candidates: Sequence[str] = CANDIDATES) -> list[str]:
    """Remove what killed attaches left in folders that a process can see; returns the names."""
    ours = re.compile(rf"autobrrr-{os.geteuid()}-[0-9a-f]{{16}}")
    removed: list[str] = []
    for candidate in candidates:
        with contextlib.suppress(OSError):
            parent = folders.open_in(pid, candidate, os.O_RDONLY | os.O_DIRECTORY, proc)
            try:
                left = filter(ours.fullmatch, os.listdir(parent))
                removed += [
                    name for name in left if folders.remove_unheld(Path(f"/proc/self/fd/{parent}", name))
                ]
            finally:
                os.close(parent)
    return removed
