"""Where traces come from: files, folders, standard input; plain or gzip.

In comes what the user named, out go blocks of JSON bytes. Damage to the compressed stream ends the
blocks and is told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import cast

from isal import isal_zlib
from isal.igzip_lib import IsalError
from msgspec import Struct

from autobrrr.errors import UsageError

BLOCK_BYTES = 1 << 18
_ISAL_ERROR = cast("type[Exception]", IsalError)  # its own types call it an instance
_FED_BYTES = 1 << 14  # what a damaged stretch, or a wrong checksum, takes with it
_GZIP = 31  # window bits of a stream with header and checksum
STANDARD_INPUT = "-"
SUFFIXES = (".json", ".json.gz", ".trace", ".trace.gz")


class TraceFile(Struct, frozen=True, kw_only=True):
    """One input. `chosen` is false where it was found in a folder and may turn out to be no trace."""

    name: str
    path: Path | None  # None: standard input, or what is open already
    chosen: bool = True
    fd: int | None = None  # an open file, read from its beginning; its owner closes it
    most_bytes: int | None = None  # of the text, packed or not; more is not read


def named_traces(words: Sequence[str]) -> list[TraceFile]:
    """The files that the words of the command line mean; a folder means all traces below it.

    Raises:
        UsageError: a word names nothing, or a folder without a trace.
    """
    found: list[TraceFile] = []
    for word in words:
        path = Path(word)
        if word == STANDARD_INPUT:
            found.append(TraceFile(name=word, path=None))
        elif path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.is_file() and _looks_right(each))
            if not inside:
                raise UsageError(f"{word} holds no .json or .json.gz", "name the trace files themselves")
            found += [TraceFile(name=str(each), path=each, chosen=False) for each in inside]
        elif path.exists():
            found.append(TraceFile(name=word, path=path))
        else:
            raise UsageError(f"there is no trace {word}", "name a .json or .json.gz file, a folder, or -")
    names = [each.name for each in found]
    if names.count(STANDARD_INPUT) > 1:
        raise UsageError("- stands more than once", "standard input can be read only once")
    return list({each.name: each for each in found}.values())


class Blocks:
    """The JSON bytes of one input, block by block.

    After the iteration `bytes_read` is the inflated size, and `damage` says why it ended early, if it did.
    """

    def __init__(
        self, stream: BufferedReader, block_bytes: int = BLOCK_BYTES, most_bytes: int | None = None
    ) -> None:
        self._stream = stream
        self._block_bytes = block_bytes
        self._most_bytes = most_bytes
        self.bytes_read = 0
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            compressed = self._stream.peek(2)[:2] in (b"\x1f", b"\x1f\x8b")  # no JSON begins so
            for block in (
                self._inflated() if compressed else iter(lambda: self._stream.read(self._block_bytes), b"")
            ):
                if self._most_bytes is not None and self.bytes_read + len(block) > self._most_bytes:
                    self.damage = f"it has more than {self._most_bytes >> 20} MB: the rest is not read"
                    return
                self.bytes_read += len(block)
                yield block
        except OSError as error:
            self.damage = f"the file could not be read to its end: {error}"
        except _ISAL_ERROR as error:
            self.damage = f"the compressed stream is damaged: {error}"

    def _inflated(self) -> Iterator[bytes]:
        """What a gzip stream of one or several members holds, as far as it can be inflated."""
        packed, inside, inflater = b"", False, isal_zlib.decompressobj(wbits=_GZIP)
        while packed := packed or self._stream.read(_FED_BYTES):
            if not inside:
                packed, inflater = packed.lstrip(b"\0"), isal_zlib.decompressobj(wbits=_GZIP)  # after padding
                if self.bytes_read and packed and packed[0] != 0x1F:
                    self.damage = "behind the compressed stream stands something else, which is not read"
                    return
            if packed:
                yield inflater.decompress(packed, self._block_bytes)
                inside = not inflater.eof
                packed = inflater.unconsumed_tail if inside else inflater.unused_data
        if inside:
            self.damage = "the compressed stream ends in the middle"


def open_blocks(source: TraceFile) -> tuple[BufferedReader, Blocks]:
    """The open stream (the caller closes it) and its blocks.

    Raises:
        UsageError: the file can't be opened.
    """
    try:
        if source.path is not None:
            stream = open(source.path, "rb")  # noqa: SIM115 - closed by the caller, who iterates
        elif source.fd is not None:
            stream = open(source.fd, "rb", closefd=False)  # noqa: SIM115
            stream.seek(0)
        elif sys.stdin is not None:
            stream = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115
        else:
            raise UsageError("standard input is closed", "name a file, or pipe a trace into it")
    except OSError as error:
        raise UsageError(f"{source.name} can't be read: {error.strerror}") from error
    return stream, Blocks(stream, most_bytes=source.most_bytes)


def _looks_right(path: Path) -> bool:
    return path.name.endswith(SUFFIXES) and not path.name.startswith(".")
