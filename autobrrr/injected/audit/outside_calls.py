"""What a run asks of the system: processes that it starts, whom it looks at.

In: the interpreter's audit events. Out: one line for each new thing. An audit hook can't be taken off: it
is for runs that are audited from beginning to end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType

PROC = "/proc/"
TELLING = ("cmdline", "comm", "environ", "exe", "stat", "status")
LOADERS = ("torch/utils/data/dataloader.py",)
WORD = b"autobrrr"
Note = Callable[[str, str], None]


class OutsideCalls:
    """Notes each kind of thing once.

    Args:
        note: Takes what was done, and to what.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._pid = os.getpid()
        self._seen: set[tuple[str, str]] = set()
        self._inside = False

    def listen(self) -> None:
        """From now on."""
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[object, ...]) -> None:
        if event not in ("open", "subprocess.Popen", "os.posix_spawn", "os.system", "os.fork", "os.forkpty"):
            return
        if self._inside or os.getpid() != self._pid:
            return
        self._inside = True
        try:
            if event == "open":
                self._opened(args[0])
            elif event.startswith("os.fork"):
                self._add("forked", "loader" if _within(LOADERS) else "process")
            else:
                self._add("started", _words(args[1] if event != "os.system" else args[0]))
        finally:
            self._inside = False

    def _opened(self, path: object) -> None:
        name = os.fsdecode(path) if isinstance(path, (str, bytes)) else ""
        if name.startswith(PROC):
            who, _, what = name.removeprefix(PROC).partition("/")
            if what in TELLING and (who == str(os.getppid()) or what == "environ"):
                self._add("looked", "parent" if who == str(os.getppid()) else "environment")

    def _add(self, kind: str, what: str) -> None:
        if (kind, what) not in self._seen and len(self._seen) < 1000:
            self._seen.add((kind, what))
            self._note(kind, what)


def own_files() -> list[str]:
    """Files of the script's own code."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [
        file
        for file in files
        if isinstance(file, str) and file.endswith(".py") and not _is_installed(os.path.abspath(file))
    ]


def names_us() -> list[str]:
    """Files of the script's own code that hold our name."""
    found = []
    for file in own_files():
        try:
            with open(file, "rb") as source:
                text = source.read(1 << 22)
        except OSError:
            continue
        if WORD in text.lower():
            found.append(os.path.basename(file))
    return sorted(found)


def _is_installed(file: str) -> bool:
    places = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)}
    return "site-packages" in file or any(file.startswith(place + os.sep) for place in places)


def _within(files: tuple[str, ...]) -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(files):
            return True
        frame = frame.f_back
    return False


def _words(command: object) -> str:
    if isinstance(command, (list, tuple)):
        return " ".join(str(word) for word in command)[:200]
    return str(command)[:200]
