"""Inflates a gzip stream of one or many members, as far as it can be inflated.

In come packed bytes, out go blocks. What ends them early is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from isal import isal_zlib
from isal.igzip_lib import IsalError

_ISAL_ERROR = cast("type[Exception]", IsalError)  # its own types call it an instance
_FED_BYTES = 1 << 14  # what a damaged stretch, or a wrong checksum, takes with it
_GZIP = 31  # window bits of a stream with header and checksum


class Gunzip:
    """Blocks of what a gzip stream holds. Afterwards `damage` says why it ended early, `notes` the rest."""

    def __init__(self, read: Callable[[int], bytes], block_bytes: int) -> None:
        self.damage: str | None = None
        self.notes: list[str] = []
        self._read = read
        self._block_bytes = block_bytes

    def __iter__(self) -> Iterator[bytes]:
        packed, offset, members, begun = b"", 0, 0, False
        inflater = isal_zlib.decompressobj(wbits=_GZIP)
        while packed := packed or self._read(_FED_BYTES):
            offset += len(packed)
            if not begun:
                packed = packed.lstrip(b"\0")  # padding between members
                if members and not b"\x1f\x8b".startswith(packed[:2]):
                    self.notes.append("behind the compressed stream stands something else: not read")
                    return
            try:
                block = inflater.decompress(packed, self._block_bytes) if packed else b""
            except _ISAL_ERROR as error:
                self.damage = f"the compressed stream is damaged at about byte {offset}: {error}"
                return
            begun = begun or bool(packed)
            packed = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            offset -= len(packed)
            if block:
                yield block
            if inflater.eof:
                inflater, members, begun = isal_zlib.decompressobj(wbits=_GZIP), members + 1, False
        if begun or not members:
            self.damage = f"the compressed stream ends in the middle, at byte {offset}"
