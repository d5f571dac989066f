"""`python -m autobrrr.sidecar PID ORDER`: the background process of one job, as `process/spawn` starts it.

The starter reads lines of JSON from a pipe: `{"wait": ...}` while the target is being entered, then
`{"ready": true}`, `{"served": true}` or `{"error": {message, hint, exit_code}}`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autobrrr import folders, paths
from autobrrr.attach import door
from autobrrr.attach.ptrace import kept_tracer
from autobrrr.errors import EXIT_FAILED, AutobrrrError
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.sockets.session_socket import AlreadyServed, SessionSocket, find_target
from autobrrr.sidecar.sockets.socket_frames import failure

MOST_LOG_BYTES = 1 << 20


class StarterGone(Exception):
    """Whoever started us has given up; nobody waits for this session."""


class Announcement:
    """The pipe to the starter; closes with the last that is to be said."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def wait(self, text: str) -> None:
        """A live line while entering takes long. Raises StarterGone."""
        self._write(wait=text)

    def end(self, **said: object) -> None:
        """How it went: the session is there, or why not. Raises StarterGone."""
        self._write(**said)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, **said: object) -> None:
        try:
            if self._fd is not None:
                os.write(self._fd, json.dumps(said).encode() + b"\n")
        except OSError:
            raise StarterGone from None


def main(argv: Sequence[str] | None = None) -> int:
    """Become the sidecar of one job, as `spawn` orders it; returns when its session is over."""
    word, given = sys.argv[1:] if argv is None else argv
    pid, order = int(word), json.loads(given)
    announcement = Announcement(order["ready_fd"])
    _log_errors()
    try:
        if order["tracer_fd"] is not None:  # of the process that keeps root's right to trace
            kept_tracer.adopt(order["tracer_fd"])
        door.go_through(pid)  # of what is no command line; root of a container is all that is left to become
        endpoint = SessionSocket(find_target(pid))
        try:
            from autobrrr.sidecar.daemon import serve

            serve(
                endpoint,
                SessionOptions(**order["options"]),
                wait=announcement.wait,
                ready=lambda: announcement.end(ready=True),
            )
        finally:
            endpoint.close()
    except StarterGone:
        return EXIT_FAILED
    except AlreadyServed:
        return _tell(announcement, EXIT_FAILED, served=True)
    except AutobrrrError as error:
        return _tell(announcement, error.exit_code, **failure(error))
    except Exception as error:  # noqa: BLE001 - the last door: the starter must hear of it
        traceback.print_exc()
        told = AutobrrrError(f"the sidecar failed: {type(error).__name__}: {error}", f"see {_log_file()}")
        return _tell(announcement, EXIT_FAILED, **failure(told))
    return 0


def _tell(announcement: Announcement, code: int, **said: object) -> int:
    with suppress(StarterGone):
        announcement.end(**said)
    return code


def _log_file() -> Path:
    return paths.state_dir() / "sidecar.log"


def _log_errors() -> None:
    """What goes to standard error is written down; the starter has given us no terminal."""
    path = _log_file()
    try:
        paths.make_closed(path.parent)
        if path.exists() and path.stat().st_size > MOST_LOG_BYTES:
            path.replace(path.with_suffix(".log.old"))
        os.dup2(os.open(path, folders.APPENDING, 0o600), 2)
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main())
