"""Where traces come from: files, folders, standard input; plain or gzip.

In comes what the user named, out go blocks of JSON bytes, inflated on a thread of their own so
that decoding runs meanwhile. Damage to the compressed stream ends the blocks and is told.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import cast

from isal import isal_zlib
from isal.igzip_lib import IsalError
from msgspec import Struct

from autobrrr.errors import UsageError

BLOCK_BYTES = 1 << 18
_PACKED_BYTES = 1 << 16
_ISAL_ERROR = cast("type[Exception]", IsalError)  # its own types call it an instance
STANDARD_INPUT = "-"
SUFFIXES = (".json", ".json.gz", ".trace", ".trace.gz")


class TraceFile(Struct, frozen=True, kw_only=True):
    """One input. `chosen` is false where it was found in a folder and may turn out to be no trace."""

    name: str
    path: Path | None  # None: standard input
    chosen: bool = True


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

    After the iteration `bytes_read` is the inflated size, and `damage` says what was wrong with
    the compressed stream, if anything.
    """

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream
        self.bytes_read = 0
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        waiting: queue.Queue[bytes | None] = queue.Queue(maxsize=3)
        stop = threading.Event()
        reader = threading.Thread(target=self._read, args=(waiting, stop), daemon=True)
        reader.start()
        try:
            while (block := waiting.get()) is not None:
                self.bytes_read += len(block)
                yield block
        finally:
            stop.set()
            while reader.is_alive():
                _drop_waiting(waiting)
                reader.join(0.01)

    def _read(self, waiting: queue.Queue[bytes | None], stop: threading.Event) -> None:
        try:
            compressed = self._stream.peek(1)[:1] == b"\x1f"  # no JSON begins so
            for block in self._inflated() if compressed else iter(self._next, b""):
                if stop.is_set():
                    break
                waiting.put(block)
        except _ISAL_ERROR as error:
            self.damage = f"the compressed stream is damaged: {error}"
        except OSError as error:
            self.damage = f"the file could not be read to its end: {error}"
        except ValueError:  # closed meanwhile: nobody wants the rest
            pass
        finally:
            waiting.put(None)

    def _next(self) -> bytes:
        return self._stream.read(BLOCK_BYTES)

    def _inflated(self) -> Iterator[bytes]:
        """All members of a gzip stream; what comes before damage is not lost."""
        member = isal_zlib.decompressobj(wbits=31)
        begun = False
        while packed := self._stream.read(_PACKED_BYTES):
            while packed:
                if not begun and packed[:1] == b"\0":  # padding after the last member
                    packed = packed.lstrip(b"\0")
                    continue
                begun = True
                block = member.decompress(packed, BLOCK_BYTES)
                if block:
                    yield block
                packed = member.unconsumed_tail
                if member.eof:
                    packed, begun = member.unused_data, False
                    member = isal_zlib.decompressobj(wbits=31)
        if begun:
            self.damage = "the compressed stream ends in the middle"


def open_blocks(source: TraceFile) -> tuple[BufferedReader, Blocks]:
    """The open stream (the caller closes it) and its blocks.

    Raises:
        UsageError: the file can't be opened.
    """
    if source.path is None:
        if sys.stdin is None:
            raise UsageError("standard input is closed", "name a file, or pipe a trace into it")
        standard = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115 - closed by the caller
        return standard, Blocks(standard)
    try:
        stream = open(source.path, "rb")  # noqa: SIM115 - closed by the caller, who iterates
    except OSError as error:
        raise UsageError(f"{source.name} can't be read: {error.strerror}") from error
    return stream, Blocks(stream)


def _looks_right(path: Path) -> bool:
    return path.name.endswith(SUFFIXES) and not path.name.startswith(".")


def _drop_waiting(waiting: queue.Queue[bytes | None]) -> None:
    try:
        while True:
            waiting.get_nowait()
    except queue.Empty:
        pass
