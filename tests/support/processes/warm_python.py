"""Python processes that have imported torch already: forked from one that did it once.

Importing torch takes some three seconds of a core, and most integration tests start a process that trains.
`AUTOBRRR_TEST_COLD=1` starts each from nothing.
"""

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("warm_server.py")
COLD = "AUTOBRRR_TEST_COLD"
# What the interpreter, the allocator, torch or the agent reads once, as it is loaded. Another value there
# than the server had needs a process of its own.
READ_ONCE = ("OMP_", "GOMP_", "KMP_", "MKL_", "TORCH", "PYTORCH_", "LD_", "MALLOC_", "GLIBC_", "PYTHON")
READ_ONCE += ("AUTOBRRR", "CUDA", "EMU_", "LC_", "LANG")
SET_ANEW = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}


def start(
    words: list[str],
    environment: Mapping[str, str],
    *,
    folder: str | None = None,
    stdin: int | None = None,
    stderr: int = subprocess.STDOUT,
) -> subprocess.Popen[str]:
    """Start `python SCRIPT …` or `python -c CODE …`, warm where that is the same; its output is a pipe."""
    kind = _Warm if _can_be_warm(words, environment) else subprocess.Popen
    return kind(
        words,
        env=dict(environment),
        cwd=folder,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def _can_be_warm(words: list[str], environment: Mapping[str, str]) -> bool:
    is_program = words[0] == sys.executable and (words[1] == "-c" or words[1].endswith(".py"))
    return (
        is_program
        and COLD not in os.environ
        and sys.platform == "linux"
        and _read_once(environment) == _read_once(_of_servers())
    )


def _of_servers() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _read_once(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_ONCE) and name not in SET_ANEW
    }


class _Warm(subprocess.Popen[str]):
    """A child that was forked for us by the server: waited for, signalled and read as any other."""

    def _execute_child(self, args: list[str], *more: Any) -> None:
        *_, folder, environment = more[:6]
        pipes = more[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        given = [0 if stdin == -1 else stdin, stdout, 2 if stderr == -1 else stderr]
        request = {"words": args, "environment": environment, "folder": folder}
        self.pid = forked(json.dumps(request).encode(), given)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class _Server:
    """The process that imported torch, and the link to it."""

    def __init__(self) -> None:
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                # It outlives the test that starts it, which takes processes with its folder to be its own.
                # Each child has a path of its own.
                env={
                    name: value
                    for name, value in _of_servers().items()
                    if name not in ("XDG_RUNTIME_DIR", "PYTHONPATH")
                },
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        assert self.link.recv(16) == b"ready"
        atexit.register(self.end)

    def fork(self, request: bytes, streams: list[int]) -> int:
        """Process id of the child. Raises OSError where the server is gone."""
        socket.send_fds(self.link, [request], streams)
        pid = int(self.link.recv(16) or b"-1")
        if pid <= 0:
            raise ConnectionError("the server forks no more")
        return pid

    def end(self) -> None:
        self.link.close()
        self.process.wait()


def forked(request: bytes, streams: list[int]) -> int:
    """Fork a child; by a new server where the last one has ended."""
    try:
        return _server().fork(request, streams)
    except OSError:
        _server().end()
        _server.cache_clear()
        return _server().fork(request, streams)


@functools.cache
def _server() -> _Server:
    """One for each process that runs tests."""
    return _Server()
