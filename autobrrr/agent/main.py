"""The agent's entry: runs on its own thread in the training process, from beginning to end.

In: the boot record of whoever brought it here. Injected, it connects to the sidecar, serves one
session and goes. Preloaded, it applies the recipe and listens for sessions. It never raises.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from types import ModuleType

from ..remedies.catalog import REGISTRY
from . import forks
from .agent import Agent
from .levers import Levers
from .link import Link, accept, connect, listen
from .plan import Plan

# What may lie in the folder of an injection.
BROUGHT = ("boot.json", "code", "source", "fired", "link.sock", "error", "error.part")


def start(boot: dict[str, object]) -> None:
    """Run the agent; returns when nothing of it is left."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        torch = boot.get("torch") or sys.modules.get("torch")
        if isinstance(torch, ModuleType):
            _run(boot, torch)
    except Exception:  # noqa: BLE001
        pass  # there is nobody to tell: the link is what failed
    finally:
        if boot.get("link"):
            clear(os.path.dirname(str(boot["link"])))
        _unmap(boot.get("mapped"))


def clear(folder: str) -> None:
    """Take away the folder that brought us here, where whoever made it was killed before it could.

    By the time that we leave somebody else may have put something of that name there.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # gone, as it should be
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return
        for name in BROUGHT:
            try:
                os.unlink(name, dir_fd=fd)
            except OSError:
                pass
        os.rmdir(folder)
    except OSError:
        pass
    finally:
        os.close(fd)


def _run(boot: dict[str, object], torch: ModuleType) -> None:
    levers = Levers(REGISTRY)
    listening = boot.get("listen")
    if isinstance(listening, str):
        _stay(boot, torch, levers, listening)
    else:
        Agent(boot, torch, Link(connect(str(boot["link"]))), levers).run()


def _stay(boot: dict[str, object], torch: ModuleType, levers: Levers, path: str) -> None:
    plan = Plan(torch, levers, boot)
    plan.begin()
    server = listen(path)
    ready = boot.get("ready")
    if callable(ready):
        ready()
    pid = os.getpid()
    guard = forks.guard(server.close)
    try:
        while os.getpid() == pid:
            link = accept(server)
            if link is not None:
                Agent(boot, torch, Link(link), levers).run()
    finally:
        guard.release()
        server.close()
        if os.getpid() == pid:
            os.unlink(path)


def _unmap(mapped: object) -> None:
    """Give back the page that the injection came in through; nothing points there any more."""
    if isinstance(mapped, (list, tuple)) and len(mapped) == 2:
        unmap = ctypes.CDLL(None).munmap
        unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        unmap(int(mapped[0]), int(mapped[1]))
