"""Starts the sidecar of a job as a process of its own, and waits until it says how that went.

The other end of the pipe is `sidecar.__main__.announce`.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict

from autobrrr import own_modules
from autobrrr.attach.ptrace import kept_tracer
from autobrrr.errors import OF_ERRORS, AutobrrrError
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.sockets.session_socket import SessionTarget


def start(target: SessionTarget, options: SessionOptions, on_wait: Callable[[str], None]) -> bool:
    """Start a sidecar and wait until it is ready; false where another serves the job.

    It ends unless a client soon owns the session, or tells it to stay.

    Raises:
        AutobrrrError: what kept the sidecar from entering the job.
    """
    reader, writer = os.pipe()
    with os.fdopen(reader) as announcements:
        _launch(target.pid, options, writer)
        for line in announcements:
            said = json.loads(line)
            if "wait" in said:
                on_wait(str(said["wait"]))
            elif "error" in said:
                raise error_from(said["error"])
            else:
                return bool(said.get("ready", False))
    raise AutobrrrError(
        f"the sidecar of process {target.pid} ended before it was ready",
        "its log: sidecar.log in the state folder",
    )


def _launch(pid: int, options: SessionOptions, writer: int) -> None:
    """Start the process, which alone has the pipe's other end from then on."""
    with os.fdopen(writer, "w"), kept_tracer.link_for(pid) or nullcontext() as tracer:
        tracer_fd = None if tracer is None else tracer.fileno()
        order = {"options": asdict(options), "ready_fd": writer, "tracer_fd": tracer_fd}
        process = subprocess.Popen(
            own_modules.command("autobrrr.sidecar", str(pid), json.dumps(order)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment(),
            pass_fds=[fd for fd in (writer, tracer_fd) if fd is not None],
            start_new_session=True,  # Ctrl-C is for this command, not for the session
        )
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie, however long we live


def environment() -> dict[str, str]:
    """For the sidecar: no thread pools that it never uses."""
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**own_modules.environment(), **dict.fromkeys(pools, "1")}


def error_from(raw: object) -> AutobrrrError:
    """An error as it was raised on the other side, maybe as another user: none is a success."""
    fields = raw if isinstance(raw, dict) else {}
    code = fields.get("exit_code")
    return AutobrrrError(
        str(fields.get("message", "the session failed without a reason")),
        str(fields.get("hint", "")),
        exit_code=code if isinstance(code, int) and code in OF_ERRORS else None,
    )
