"""Opens the terminal UI for a verb: in this terminal, or served to a browser on this machine.

The UI and its library are imported when they are needed, never for `--help`.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from socket import create_server
from typing import TYPE_CHECKING

from autobrrr import own_modules
from autobrrr.client.session_client import Client
from autobrrr.errors import EXIT_DONE, NotInstalled, UsageError

if TYPE_CHECKING:
    from autobrrr_tui.sources.live_source import LiveSource
    from autobrrr_tui.sources.replay_source import ReplaySource

OnText = Callable[[str], None]
SHIPPED = "demo"  # the name of the recorded session that comes with the package


def is_served() -> bool:
    """Whether a server shows this program to a browser."""
    return "TEXTUAL_DRIVER" in os.environ


def wants_screen() -> bool:
    """Whether somebody looks at a screen: a terminal on both ends, or a browser."""
    return is_served() or (all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr)))


def live_source(pid: int, opened: Callable[[OnText], Client], *, readonly: bool) -> LiveSource:
    """A session that runs, with those of its other ranks, as a source."""
    from autobrrr_tui.sources.live_source import LiveSource, Siblings

    return LiveSource(pid, opened, readonly=readonly, siblings=Siblings())


def past_session(name: str, *, speed: float | None = None) -> ReplaySource:
    """A session log, or the recorded session that is shipped, as a source.

    Raises:
        UsageError: it can't be read.
    """
    from autobrrr_tui.sources.replay_source import ReplaySource, read

    path = session_file(name)
    return ReplaySource(read(path), title=path.name, speed=speed)


def session_file(name: str) -> Path:
    """The file of a session: a path, a log's name, a pid (its latest), `last`, or `demo`.

    Raises:
        UsageError: there is none.
    """
    if name == SHIPPED:
        from autobrrr_tui.sources.replay_source import RECORDING

        return RECORDING
    if os.path.isfile(name):
        return Path(name)
    return logged_session(name)


def logged_session(name: str) -> Path:
    """The same among the logs of this user alone: a log's name, a pid (its latest) or `last`.

    Raises:
        UsageError: there is none.
    """
    from autobrrr import paths

    folder = paths.state_dir() / "sessions"
    logs = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    fitting = [
        log
        for log in logs
        if name in (log.name, log.stem, "last") or (name.isdigit() and log.stem.endswith(f"-{name}"))
    ]
    if not fitting:
        latest = f"the latest is {logs[-1].stem}" if logs else f"{folder} holds none"
        raise UsageError(f"there is no session {name!r}", f"{latest}; autobrrr report lists them")
    return fitting[-1]


def serve(port: int) -> int:
    """Serve the screen of this command to browsers here until Ctrl-C. Each page runs the command anew.

    Raises:
        UsageError: the library that serves is not installed, or the port is none.
    """
    if importlib.util.find_spec("textual_serve") is None:
        raise NotInstalled("textual-serve", "--web")
    if not 0 < port < 65536:
        raise UsageError(f"--web {port} is not a port", "a port is a number from 1 to 65535")
    from autobrrr_tui.browser_serving import HOST, LocalServer

    try:
        create_server((HOST, port)).close()
    except OSError as error:
        raise UsageError(f"--web {port}: {error.strerror}", "name another port: --web PORT") from None
    os.environ.update(own_modules.environment())
    LocalServer(shlex.join(own_modules.command("autobrrr", *sys.argv[1:])), port).serve()
    return EXIT_DONE
