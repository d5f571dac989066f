"""A register in memory that the ranks of one machine share: it answers at once.

It is a file without a name to which every rank appends records of one size. The kernel lets one append at a
time, so the order of records is the same for all, and the first for a key is the one that stands. Nobody
serves it: no rank that dies or is stopped keeps another one from asking, and the memory goes with its last
user. In: keys and values, of all ranks. Out: what stands.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ..wire.plain_number import whole_number
from .switch_protocol import PLAN

RECORD_BYTES = 512  # a page holds whole records: an append is never torn
SEPARATOR, PARTED = "\t", "|"  # of a record, of an address
TOKEN_KEY = "log"


class RegisterLost(Exception):
    """It can't be asked: closed, full, or not there. The message says which."""


class SharedLog:
    """One rank's way to it. From any thread; holds no lock and never waits.

    Args:
        fd: Of the file; ours from now on.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._read_bytes = 0
        self._known: dict[str, str] = {}

    @property
    def address(self) -> str:
        """For the other ranks: by way of this one. Raises RegisterLost."""
        return PARTED.join((_machine(), str(os.getpid()), str(self._fd), self.get(TOKEN_KEY) or ""))

    def is_at(self, address: str) -> bool:
        """Whether this is that log, by way of whichever rank."""
        return address.rpartition(PARTED)[2] == self.get(TOKEN_KEY)

    @classmethod
    def create(cls) -> SharedLog:
        """A new one. Raises RegisterLost."""
        try:
            fd = os.memfd_create("autobrrr ranks", os.MFD_CLOEXEC)
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        except OSError as error:
            raise RegisterLost(f"no memory to share: {error.strerror}") from None
        made = cls(fd)
        made.put(TOKEN_KEY, os.urandom(8).hex())
        return made

    @classmethod
    def open(cls, address: str) -> SharedLog:
        """That of another rank. Raises RegisterLost where it has gone, or is on another machine."""
        parts = address.split(PARTED)
        if len(parts) != 4 or None in map(whole_number, parts[1:3]):
            raise RegisterLost("this is no address of a log")
        machine, pid, number, token = parts
        if machine != _machine():
            raise RegisterLost("a rank is on another machine, or in another container")
        try:
            fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise RegisterLost(f"the rank that kept it has gone: {error.strerror}") from None
        found = cls(fd)
        try:
            if found.get(TOKEN_KEY) != token:
                raise RegisterLost("the rank that kept it has gone")
        except RegisterLost:
            found.leave()
            raise
        return found

    def put(self, key: str, value: str) -> str:
        """What stands at the key: `value`, unless something stood there before. Raises RegisterLost."""
        standing = self.get(key)
        if standing is not None:
            return standing
        record = f"{key}{SEPARATOR}{value}".encode()
        if len(record) >= RECORD_BYTES:
            raise RegisterLost(f"{key} takes {len(record)} bytes, and there is room for {RECORD_BYTES - 1}")
        try:
            os.write(self._fd, record.ljust(RECORD_BYTES - 1) + b"\n")
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
        # Two threads may read one record: each sets what stands first, and neither leaves one out.
        at = self._read_bytes
        try:
            data = os.pread(self._fd, 1 << 16, at)
            while data:
                for start in range(0, len(data) - len(data) % RECORD_BYTES, RECORD_BYTES):
                    record = data[start : start + RECORD_BYTES].rstrip(b" \n").decode(errors="replace")
                    key, _, value = record.partition(SEPARATOR)
                    self._known.setdefault(key, value)
                at += len(data) - len(data) % RECORD_BYTES
                if len(data) < 1 << 16:
                    break
                data = os.pread(self._fd, 1 << 16, at)
        except OSError as error:
            raise RegisterLost(f"it can't be read: {error.strerror}") from None
        self._read_bytes = max(self._read_bytes, at)


def _machine() -> str:
    """The same for processes that see each other's files under `/proc`."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError as error:
        raise RegisterLost(f"the machine does not say which it is: {error.strerror}") from None
