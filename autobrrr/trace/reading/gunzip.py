"""Inflates a gzip stream of one or many members and loses nothing that can be inflated.

In come packed bytes, out go blocks. A wrong checksum does not end the blocks, damage does; both are told.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import cast

from isal import isal_zlib
from isal.igzip_lib import IsalError

_ISAL_ERROR = cast("type[Exception]", IsalError)  # its own types call it an instance
_READ_BYTES = 1 << 16
_FED_BYTES = 1 << 13  # what a damaged stretch takes with it
_FIXED = struct.Struct("<2sBBIBB")
_TRAILER = struct.Struct("<II")
_EXTRA, _NAME, _COMMENT, _HEADER_CRC = 4, 8, 16, 2
_HEADER_LIMIT_BYTES = 1 << 20


class _NoHeader(Exception):
    """What stands here is no gzip header."""


class Gunzip:
    """Blocks of what a gzip stream holds. Afterwards `damage` says why it ended early, `notes` the rest."""

    def __init__(self, read: Callable[[int], bytes], block_bytes: int) -> None:
        self.damage: str | None = None
        self.notes: list[str] = []
        self._read = read
        self._block_bytes = block_bytes
        self._packed = b""
        self._offset = 0  # of `_packed` in the file

    def __iter__(self) -> Iterator[bytes]:
        members = 0
        while self._skip_padding():
            start = self._offset
            try:
                whole = self._header()
            except _NoHeader:
                if members:
                    self.notes.append(
                        f"behind the compressed stream, from byte {start} on, stands something else: not read"
                    )
                else:
                    self.damage = "the compressed stream has no gzip header"
                return
            if not whole:
                self.damage = "the compressed stream ends in a header"
                return
            yield from self._member()
            members += 1
            if self.damage is not None:
                return

    def _member(self) -> Iterator[bytes]:
        inflater = isal_zlib.decompressobj(wbits=-15)
        pending, waiting, crc, size = [], 0, 0, 0
        try:
            fed = b""
            while not inflater.eof and (fed or self._fill(1)):
                fed = fed or self._take(min(len(self._packed), _FED_BYTES))
                block = inflater.decompress(fed, self._block_bytes)
                fed = inflater.unconsumed_tail
                crc, size = isal_zlib.crc32(block, crc), size + len(block)
                pending.append(block)
                waiting += len(block)
                if waiting >= self._block_bytes:
                    yield b"".join(pending)
                    pending, waiting = [], 0
        except _ISAL_ERROR as error:
            self.damage = f"the compressed stream is damaged at about byte {self._offset}: {error}"
        if waiting:
            yield b"".join(pending)
        if self.damage is not None:
            return
        self._give_back(inflater.unused_data)
        if not inflater.eof or not self._fill(_TRAILER.size):
            self.damage = f"the compressed stream ends in the middle, at byte {self._offset}"
            return
        if _TRAILER.unpack(self._take(_TRAILER.size)) != (crc, size & 0xFFFFFFFF):
            self.notes.append(
                f"the checksum of the compressed stream, at byte {self._offset - _TRAILER.size}, is wrong:"
                " some of what was read may be"
            )

    def _header(self) -> bool:
        """Reads past a header; False where the stream ends in it."""
        if not self._fill(_FIXED.size):
            if not b"\x1f\x8b\x08".startswith(self._packed[:3]):
                raise _NoHeader
            return False
        magic, method, flags, *_ = _FIXED.unpack(self._take(_FIXED.size))
        if magic != b"\x1f\x8b" or method != 8:
            raise _NoHeader
        if flags & _EXTRA:
            if not self._fill(2):
                return False
            (length,) = struct.unpack("<H", self._take(2))
            if not self._fill(length):
                return False
            self._take(length)
        for flag in (_NAME, _COMMENT):
            if flags & flag and not self._skip_text():
                return False
        if flags & _HEADER_CRC:
            if not self._fill(2):
                return False
            self._take(2)
        return True

    def _skip_text(self) -> bool:
        wanted = 1
        while self._fill(wanted) and wanted < _HEADER_LIMIT_BYTES:
            end = self._packed.find(b"\0")
            if end >= 0:
                self._take(end + 1)
                return True
            wanted = len(self._packed) + 1
        return False

    def _skip_padding(self) -> bool:
        """Reads past zeros between members; False at the end."""
        while self._fill(1):
            kept = self._packed.lstrip(b"\0")
            self._offset += len(self._packed) - len(kept)
            self._packed = kept
            if kept:
                return True
        return False

    def _fill(self, count: int) -> bool:
        while len(self._packed) < count:
            more = self._read(_READ_BYTES)
            if not more:
                return False
            self._packed += more
        return True

    def _take(self, count: int) -> bytes:
        taken, self._packed = self._packed[:count], self._packed[count:]
        self._offset += count
        return taken

    def _give_back(self, packed: bytes) -> None:
        self._packed = packed + self._packed
        self._offset -= len(packed)
