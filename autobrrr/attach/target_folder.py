"""A private folder inside the target's own mount namespace, for the bundle and the link's socket.

Made through `/proc/PID/root` as the target's user, from descriptor to descriptor (see `folders`). Removed in
every case: by whoever made it, else by the agent, else by whoever attaches next.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from autobrrr.attach import own_place
from autobrrr.errors import CannotAttach, TargetGone
from autobrrr.folders import Folder, as_user, open_beneath, remove_unheld

CANDIDATES = ("/tmp", "/dev/shm", "/var/tmp")
SOCKET = "link.sock"
MOST_SAID_BYTES = 4095  # as a link
MOST_SWEPT = 64  # of one folder; whoever fills it with more holds nobody up
_NAME = re.compile(r"autobrrr-(\d{1,10})-[0-9a-f]{16}")


class TargetFolder:
    """One private folder, open. Use as a context: it is removed at the end.

    While it is open its lock is held: one without a holder was left by an attach that was killed.

    Args:
        pid: The target.
        uid, gid: Who the folder must belong to: the target.

    Raises:
        CannotAttach: none of the candidates can be written.
        TargetGone: the target ended.
    """

    def __init__(
        self,
        pid: int,
        uid: int,
        gid: int,
        *,
        proc: Path = Path("/proc"),
        candidates: Sequence[str] = CANDIDATES,
    ) -> None:
        self._name = f"autobrrr-{uid}-{secrets.token_hex(8)}"
        refusals = []
        for candidate in candidates:
            try:
                self._parent = open_in(pid, candidate, uid, gid, proc)
            except OSError as error:
                refusals.append(f"{candidate}: {error.strerror}")
                continue
            try:
                self._folder = Folder.new(self._parent, self._name, uid, gid)
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
            f"{own_place.GIVE_TMP}, or start training with `autobrrr run -- ...`",
        )

    def write(self, name: str, data: bytes) -> None:
        """A file for the target to read."""
        self._folder.write(name, data)

    def said(self, name: str) -> str | None:
        """The text of a link that the target left: see `complaint`; None where there is none.

        Where the target may make no links it has left a file.
        """
        linked = self._folder.link_text(name)
        return linked if linked is not None else self._folder.file_text(name, MOST_SAID_BYTES)

    def listen(self) -> socket.socket:
        """A listening socket at `SOCKET`; connectable by the target's uid and root alone."""
        return self._folder.listen(SOCKET, 2)

    @property
    def socket_path(self) -> str:
        """The socket as the target sees it."""
        return f"{self.path}/{SOCKET}"

    def remove(self) -> None:
        """Take away all of it. Files only: nothing in it is a folder of ours."""
        self._folder.remove_all(self._parent, self._name)
        self._folder.close()
        os.close(self._parent)

    def __enter__(self) -> TargetFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def open_in(pid: int, path: str, uid: int, gid: int, proc: Path = Path("/proc")) -> int:
    """A folder as a process sees it, opened as a user. Raises OSError."""
    root = os.open(proc / str(pid) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return as_user(uid, gid, lambda: open_beneath(root, path))
    finally:
        os.close(root)


def sweep(
    pid: int, uid: int, gid: int, proc: Path = Path("/proc"), candidates: Sequence[str] = CANDIDATES
) -> list[str]:
    """Take away what killed attaches left where a process of this user sees it; returns the names.

    Each is removed as its owner; what is not ours to touch stays. Nothing is raised.
    As another user's process sees it, only that user's are: it may have mounted any folder under such a name.
    """
    others_too = pid == os.getpid() or uid == os.geteuid()
    removed: list[str] = []
    for candidate in candidates:
        with contextlib.suppress(OSError):
            parent = open_in(pid, candidate, uid, gid, proc)
            try:
                left = as_user(uid, gid, lambda parent=parent: _left(parent))  # type: ignore[misc]
                removed += [
                    name
                    for name, found in left
                    if (others_too or found.st_uid == uid)
                    and _swept(parent, name, found, gid if found.st_uid == uid else found.st_gid)
                ]
            finally:
                os.close(parent)
    return removed


def _left(parent: int) -> list[tuple[str, os.stat_result]]:
    named = [each for each in os.listdir(parent) if _NAME.fullmatch(each)][:MOST_SWEPT]
    return [(each, os.stat(each, dir_fd=parent, follow_symlinks=False)) for each in named]


def _swept(parent: int, name: str, found: os.stat_result, gid: int) -> bool:
    if os.geteuid() not in (0, found.st_uid) or not name.startswith(f"autobrrr-{found.st_uid}-"):
        return False
    try:
        return remove_unheld(parent, name, found.st_uid, gid)
    except OSError:
        return False
