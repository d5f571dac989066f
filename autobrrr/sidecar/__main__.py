"""`python -m autobrrr.sidecar PID ORDER`: the background process of one job, as `process/spawn` starts it.

The starter reads lines of JSON from a pipe: `{"wait": ...}` while the target is being entered, then
`{"ready": true}`, `{"served": true}` or `{"error": {message, hint, exit_code}}`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from autobrrr import folders, paths
from autobrrr.attach import door
from autobrrr.attach.ptrace import kept_tracer
from autobrrr.errors import EXIT_FAILED, AutobrrrError
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.sockets.session_socket import AlreadyServed, SessionSocket, find_target
from autobrrr.sidecar.sockets.socket_frames import failure

MOST_LOG_BYTES = 1 << 20


def announce(fd: int, **said: object) -> None:
    """Tell the starter how it goes: why entering takes long, that the session is there, or why not.

    Raises:
        BrokenPipeError: nobody reads it.
    """
    os.write(fd, json.dumps(said).encode() + b"\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Become the sidecar of one job, as `spawn` orders it; returns when its session is over."""
    word, given = sys.argv[1:] if argv is None else argv
    pid, order = int(word), json.loads(given)
    tell = partial(announce, order["ready_fd"])
    _log_errors()
    said: dict[str, object]
    try:
        _serve(pid, order, tell)
    except BrokenPipeError:  # whoever started us has given up; nobody waits for this session
        return EXIT_FAILED
    except AlreadyServed:
        code, said = EXIT_FAILED, {"served": True}
    except AutobrrrError as error:
        code, said = error.exit_code, failure(error)
    except Exception as error:  # noqa: BLE001 - the last door: the starter must hear of it
        traceback.print_exc()
        told = AutobrrrError(f"the sidecar failed: {type(error).__name__}: {error}", f"see {_log_file()}")
        code, said = EXIT_FAILED, failure(told)
    else:
        return 0
    with suppress(BrokenPipeError):
        tell(**said)
    return code


def _serve(pid: int, order: dict[str, Any], tell: Callable[..., None]) -> None:
    if order["tracer_fd"] is not None:  # of the process that keeps root's right to trace
        kept_tracer.adopt(order["tracer_fd"])
    door.go_through(pid)  # of what is no command line; root of a container is all that is left to become
    endpoint = SessionSocket(find_target(pid))
    try:
        from autobrrr.sidecar.daemon import serve

        options = SessionOptions(**order["options"])
        serve(endpoint, options, wait=lambda text: tell(wait=text), ready=lambda: tell(ready=True))
    finally:
        endpoint.close()


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
