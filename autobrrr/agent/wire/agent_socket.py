"""The agent's end of the socket, and its bell.

The agent's thread waits here, for a frame of the sidecar or for the bell that another thread
rings. Sending never blocks training: only the agent's thread sends. Raises `LinkLost` once the other
side is gone or talks nonsense.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import framing
from .framing import UNHEARD

SEND_TIMEOUT_S = 5.0
_CLOSED = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
LONGEST_PATH = 100  # sun_path holds 108 bytes


class LinkLost(Exception):
    """The other side is gone, or what it sends is no frame; `errno` of the call that said so, if any."""

    def __init__(self, why: str, errno: int | None = None) -> None:
        super().__init__(why)
        self.errno = errno


def connect(path: str) -> socket.socket:
    """Connect to the sidecar's listening socket; raises OSError, also where somebody else listens there."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as short:
            link.connect(short)
        if not is_trusted(link):
            raise PermissionError(errno.EPERM, "another user listens there", path)
    except BaseException:
        link.close()
        raise
    return link


def listen(path: str) -> socket.socket:
    """Listen on a socket that only this user can open; raises OSError.

    Its name is this process's: what lies there was left by the program that it was before an exec.
    """
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(server.fileno(), 0o600)  # before it has a name: it never was open to others
        with _short(path) as short:
            with suppress(FileNotFoundError):
                os.unlink(short)
            server.bind(short)
        server.listen(4)
    except BaseException:
        server.close()
        raise
    return server


def accept(server: socket.socket) -> socket.socket | None:
    """The next connection; None if it comes from another user."""
    link, _ = server.accept()
    if not is_trusted(link):
        link.close()
        return None
    return link


def is_trusted(link: socket.socket) -> bool:
    """Whether the other side is this user or root."""
    size = struct.calcsize("3i")
    _pid, uid, _gid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return uid in (0, os.geteuid())


@contextmanager
def _short(path: str) -> Iterator[str]:
    """A path that fits into a socket address: through the open folder where it is too long."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield path
        return
    whole = Path(path)
    fd = os.open(whole.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{whole.name}"
    finally:
        os.close(fd)


class AgentSocket:
    """Frames to and from the sidecar, and the bell."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        link.settimeout(SEND_TIMEOUT_S)
        # A pair of sockets, not a pipe: once it is closed here, another thread's ring is refused.
        self._bell_out, self._bell_in = socket.socketpair()
        self._bell_out.setblocking(False)
        self._bell_in.setblocking(False)
        self._poll = select.poll()
        self._poll.register(link.fileno(), select.POLLIN)
        self._poll.register(self._bell_out.fileno(), select.POLLIN)

    def ring_bell(self) -> None:
        """Wake the agent's thread. From any thread; after the close it does nothing."""
        try:
            self._bell_in.send(b"!", UNHEARD)
        except OSError:  # full: it rings anyway
            pass

    def wait(self, timeout_ms: int) -> bool:
        """Until a frame is there, the bell rings or time is up; whether there is one, or no link any more."""
        ready = dict(self._poll.poll(timeout_ms))
        if self._bell_out.fileno() in ready:
            try:
                self._bell_out.recv(4096)
            except BlockingIOError:
                pass
        return self._link.fileno() in ready

    def lost(self) -> bool:
        """Whether the other side has closed the link, or is gone; never waits and reads nothing."""
        if self._link.fileno() < 0:
            return True
        look = select.poll()
        look.register(self._link.fileno(), _CLOSED)
        return bool(look.poll(0))

    def receive(self) -> dict[str, object]:
        """One frame; raises LinkLost."""
        try:
            return framing.receive(self._link)
        except (framing.Closed, framing.BadFrame, OSError) as error:
            raise LinkLost(str(error)) from None

    def send(self, message: dict[str, object], fd: int | None = None) -> None:
        """One frame, with a file descriptor where given; raises LinkLost."""
        try:
            if fd is None:
                framing.send(self._link, message)
                return
            frame = framing.encode(message)
            handed = [
                (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))
            ]  # `send_fds` takes no flags
            sent = self._link.sendmsg([frame], handed, UNHEARD)
            self._link.sendall(frame[sent:], UNHEARD)
        except (OSError, framing.BadFrame) as error:
            raise LinkLost(str(error), getattr(error, "errno", None)) from None

    def close(self) -> None:
        """Close socket and bell; may be called twice."""
        self._link.close()
        self._bell_in.close()
        self._bell_out.close()
