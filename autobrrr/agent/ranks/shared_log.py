"""A register in memory that the ranks of one machine share: it answers at once.

It is a file without a name to which every rank appends lines of JSON. The kernel lets one append at a
time, so the order of lines is the same for all, and the first for a key is the one that stands. Nobody
serves it: no rank that dies or is stopped keeps another one from asking, and the memory goes with its last
user. In: keys and values, of all ranks. Out: what stands.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress

from ..wire.kernel_texts import whole_number
from .switch_protocol import PLAN

NAME = "autobrrr ranks"
PARTED = "|"  # parts of an address
GONE = "the rank that kept it has gone, or is on another machine"


class RegisterLost(Exception):
    """It can't be asked: closed, full, or not there. The message says which."""


class SharedLog:
    """One rank's way to it. From any thread; holds no lock and never waits.

    Args:
        fd: Of the file; ours from now on.
        token: In the file's name, by which every rank knows it.
    """

    def __init__(self, fd: int, token: str) -> None:
        self._fd, self._token = fd, token
        self._read_bytes = 0
        self._known: dict[str, str] = {}

    @property
    def address(self) -> str:
        """For the other ranks: by way of this one."""
        return PARTED.join((str(os.getpid()), str(self._fd), self._token))

    def is_at(self, address: str) -> bool:
        """Whether this is that log, by way of whichever rank."""
        return address.rpartition(PARTED)[2] == self._token

    @classmethod
    def create(cls) -> SharedLog:
        """A new one. Raises RegisterLost."""
        token = os.urandom(8).hex()
        try:
            fd = os.memfd_create(f"{NAME} {token}", os.MFD_CLOEXEC)
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        except OSError as error:
            raise RegisterLost(f"no memory to share: {error.strerror}") from None
        return cls(fd, token)

    @classmethod
    def open(cls, address: str) -> SharedLog:
        """That of another rank. Raises RegisterLost where it has gone, or is on another machine."""
        place, _, token = address.rpartition(PARTED)
        pid, _, number = place.partition(PARTED)
        if None in (whole_number(pid), whole_number(number)):
            raise RegisterLost("this is no address of a log")
        path = f"/proc/{pid}/fd/{number}"
        try:
            if os.readlink(path) != f"/memfd:{NAME} {token} (deleted)":  # another file has that number by now
                raise RegisterLost(GONE)
            return cls(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC), token)
        except OSError as error:
            raise RegisterLost(f"{GONE}: {error.strerror}") from None

    def put(self, key: str, value: str) -> str:
        """What stands at the key: `value`, unless something stood there before. Raises RegisterLost."""
        standing = self.get(key)
        if standing is None:
            try:
                os.write(self._fd, f"\n{json.dumps([key, value])}\n".encode())
            except OSError as error:
                raise RegisterLost(f"nothing can be put there: {error.strerror}") from None
            standing = self.get(key)
        if standing is None:
            raise RegisterLost("what was put there is not there")
        return standing

    def get(self, key: str) -> str | None:
        """What stands at the key; None: nothing. Raises RegisterLost."""
        self._read()
        return self._known.get(key)

    def plans(self) -> int:
        """The number of the last plan that stands there; 0 where none does. Raises RegisterLost."""
        self._read()
        return max((int(key.split("/")[0]) for key in self._known if key.endswith(PLAN)), default=0)

    def leave(self) -> None:
        """Nothing is asked any more: each question then raises RegisterLost."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _read(self) -> None:
        # Two threads may read one line: each sets what stands first, and neither leaves one out.
        at = self._read_bytes
        try:
            data = os.pread(self._fd, max(0, os.fstat(self._fd).st_size - at), at)
        except OSError as error:
            raise RegisterLost(f"it can't be read: {error.strerror}") from None
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            with suppress(ValueError):  # empty, or torn: its writer was killed
                key, value = json.loads(line)
                self._known.setdefault(key, value)
        self._read_bytes = max(self._read_bytes, at + len(whole))
