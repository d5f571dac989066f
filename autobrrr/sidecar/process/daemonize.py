"""How a sidecar comes into the world: its order, its log, and telling its starter.

The starter reads lines of JSON from a pipe: `{"wait": ...}` while the target is being entered, then
`{"ready": true}`, `{"served": true}` or `{"error": {message, hint, exit_code}}`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from autobrrr import folders, paths
from autobrrr.attach import door
from autobrrr.attach.ptrace import kept_tracer
from autobrrr.errors import EXIT_FAILED, AutobrrrError
from autobrrr.sidecar.process.session_options import order_from
from autobrrr.sidecar.sockets.session_socket import AlreadyServed, SessionSocket, find_target

MOST_LOG_BYTES = 1 << 20


class StarterGone(Exception):
    """Whoever started us has given up; nobody waits for this session."""


class Announcement:
    """The pipe to the starter; says each thing once, then closes."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def wait(self, text: str) -> None:
        """A live line while entering takes long. Raises StarterGone."""
        self._write({"wait": text})

    def ready(self) -> None:
        """The session is there. Raises StarterGone."""
        self._write({"ready": True})
        self._close()

    def served(self) -> None:
        """Somebody else serves the job, or is about to."""
        self._write({"served": True})
        self._close()

    def error(self, error: AutobrrrError) -> None:
        try:
            self._write(
                {"error": {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}}
            )
        except StarterGone:
            pass
        self._close()

    def _write(self, line: dict[str, object]) -> None:
        if self._fd is None:
            return
        try:
            os.write(self._fd, json.dumps(line).encode() + b"\n")
        except OSError:
            raise StarterGone from None

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def main(argv: Sequence[str] | None = None) -> int:
    """Become the sidecar of one job; returns when its session is over."""
    word, given = sys.argv[1:] if argv is None else argv
    pid, order = int(word), order_from(given)
    announcement = Announcement(order.ready_fd)
    if order.foreground:
        _die_with_parent()
    else:
        _log_errors()
    try:
        if order.tracer_fd is not None:
            kept_tracer.adopt(order.tracer_fd)
        door.go_through(pid)  # of what is no command line; root of a container is all that is left to become
        endpoint = SessionSocket(find_target(pid))
        try:
            from autobrrr.sidecar.daemon import serve

            serve(
                endpoint,
                order.options,
                owned=order.owned,
                wait=announcement.wait,
                ready=announcement.ready,
            )
        finally:
            endpoint.close()
    except StarterGone:
        return EXIT_FAILED
    except AlreadyServed:
        announcement.served()
        return EXIT_FAILED
    except AutobrrrError as error:
        announcement.error(error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the last door: the starter must hear of it
        traceback.print_exc()
        announcement.error(
            AutobrrrError(f"the sidecar failed: {type(error).__name__}: {error}", f"see {log_file()}")
        )
        return EXIT_FAILED
    return 0


def log_file() -> Path:
    """Where faults of sidecars are written down."""
    return paths.state_dir() / "sidecar.log"


def _log_errors() -> None:
    """What goes to standard error is written down; the starter has given us no terminal."""
    path = log_file()
    try:
        paths.make_closed(path.parent)
        if path.exists() and path.stat().st_size > MOST_LOG_BYTES:
            path.replace(path.with_suffix(".log.old"))
        os.dup2(os.open(path, folders.APPENDING, 0o600), 2)
    except OSError:
        pass


def _die_with_parent() -> None:
    """SIGTERM, and with it an orderly detach, when the command that started us is killed."""
    import ctypes

    pr_set_pdeathsig = 1
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, 15, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(EXIT_FAILED)
