"""The agent's entry: runs on its own thread in the training process, from beginning to end.

In: the boot record of whoever brought it here. Injected, it connects to the sidecar, serves one
session and goes. Preloaded, it applies the recipe and listens for sessions. What it raises is what kept
it from coming up: whoever started it says so, and training goes on.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

from .agent_session import AgentSession
from .audit.work_audit import WorkAudit
from .loop.fork_guard import ForkGuard
from .recipe_startup import RecipeStartup
from .remedies.active_remedies import ActiveRemedies
from .remedies.families import REGISTRY
from .wire.agent_socket import AgentSocket, LinkLost, accept, connect, listen

KEY = "autobrrr session"
PATIENCE_S, LOOK_S = 3.0, 0.01  # an agent that has closed its link is still leaving


class NotUp(Exception):
    """The agent could not come up.

    Args:
        part: What of it could not: a value of `complaint.Part` on the other side.
        errno: Of the system call that was refused, where it was one.
    """

    def __init__(self, part: str, errno: int | None, why: str) -> None:
        super().__init__(why)
        self.part, self.errno = part, errno


@contextmanager
def _part(name: str) -> Iterator[None]:
    """What the system refuses in here is refused to this part."""
    try:
        yield
    except (OSError, MemoryError, LinkLost) as error:
        raise NotUp(name, getattr(error, "errno", None), str(error) or type(error).__name__) from error


def start(boot: dict[str, object]) -> None:
    """Run the agent; returns when nothing of it is left. Raises `NotUp`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    torch = boot.get("torch") or sys.modules.get("torch")
    if isinstance(torch, ModuleType):
        _run(boot, torch)


def _run(boot: dict[str, object], torch: ModuleType) -> None:
    active = ActiveRemedies(REGISTRY)
    listening = boot.get("listen")
    if isinstance(listening, str):
        _stay(boot, torch, active, listening)
    else:
        with _part("link"):
            link = AgentSocket(connect(str(boot["link"])))
        _serve(boot, torch, link, active)


def _serve(boot: dict[str, object], torch: ModuleType, link: AgentSocket, active: ActiveRemedies) -> None:
    """One session on a link."""
    try:
        with claimed(boot):
            with _part("ring"):
                agent = boot["session"] = AgentSession(boot, torch, link, active)
            with _part("hello"):
                agent.run()
    except Occupied as theirs:
        raise NotUp("session", None, str(theirs)) from None
    finally:
        link.close()


def _stay(boot: dict[str, object], torch: ModuleType, active: ActiveRemedies, path: str) -> None:
    audited = boot.get("audited")
    if isinstance(audited, str):
        with suppress(Exception):  # then nothing is written, which whoever reads it sees
            WorkAudit(torch, audited).begin()
    plan = RecipeStartup(torch, active, boot)
    plan.begin()
    server = listen(path)
    ready = boot.get("ready")
    if callable(ready):
        ready()
    pid, guard = os.getpid(), ForkGuard(server.close)
    try:
        while os.getpid() == pid:
            link = accept(server)
            if link is not None:
                with suppress(NotUp):  # the sidecar sees the link close; the next one may fare better
                    with _part("link"):
                        whole = AgentSocket(link)
                    _serve(boot, torch, whole, active)
    finally:
        guard.release()
        server.close()
        if os.getpid() == pid:
            os.unlink(path)


class Occupied(Exception):
    """Another agent has a session here; its text is the folder of that session's socket, or nothing."""


@contextmanager
def claimed(boot: dict[str, object], patience_s: float = PATIENCE_S) -> Iterator[None]:
    """No other agent begins a session meanwhile. Raises `Occupied`."""
    held = vars(_thread)  # all agents find it, whatever modules they brought; no job looks there
    mine = (os.getpid(), boot.get("socket_folder") or "")
    end_s = time.monotonic() + patience_s
    while (theirs := held.setdefault(KEY, mine)) is not mine:
        if theirs[0] != mine[0]:  # this process was forked with it: that agent is not here
            held.pop(KEY, None)
        elif time.monotonic() > end_s:
            raise Occupied(theirs[1])
        else:
            time.sleep(LOOK_S)
    try:
        yield
    finally:
        if held.get(KEY) is mine:
            del held[KEY]
