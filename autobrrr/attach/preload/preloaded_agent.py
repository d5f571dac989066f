"""An agent that comes with the process: how `run` prepares it, and how attach finds it later.

`prepare` makes a private folder with the bundle and a `sitecustomize`, and puts it on PYTHONPATH; the process
arms itself when it has imported torch (see `preload_site`), and then listens on a socket in the runtime
folder. No variable or file that the command sees has our name.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from autobrrr import folders, paths
from autobrrr.attach.bundle import code_bundle
from autobrrr.errors import AutobrrrError
from autobrrr.machine import kernel_text, procfs

SITE = Path(__file__).resolve().with_name("preload_site") / "sitecustomize.py"
CONNECT_TRIES, CONNECT_PAUSE_S = 20, 0.01
VARIABLE = "PYTHONPATH"  # of whatever a run has started: its folder is on it
_RUN = re.compile(r"run-[0-9a-f]{16}")
_SOCKET = re.compile(r"agent-(\d{1,10})-(\d{1,20})\.sock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a command needs in order to start with an agent.

    Attributes:
        held: The folder, open and locked for as long as somebody supervises the run.
    """

    folder: Path
    environment: dict[str, str]
    held: list[int]

    def remove(self) -> None:
        """Take the folder away."""
        shutil.rmtree(self.folder, ignore_errors=True)
        while self.held:
            os.close(self.held.pop())
        sweep(self.folder.parent)  # sockets of the processes that have just ended


def prepare(
    plan: Mapping[str, object] | None,
    env: Mapping[str, str],
    runtime: Path,
    *,
    audit: Path | None = None,
    entries: tuple[code_bundle.Entry, ...] | None = None,
) -> Prepared:
    """Make the folder and the environment of a command.

    Args:
        plan: What the agent shall apply; None: nothing.
        env: The environment to start from.
        runtime: The runtime folder; agents listen there.
        audit: Where the account of the whole run goes; each process adds its rank and its number to the name.
        entries: The bundle to ship; the agent where None.

    Raises:
        AutobrrrError: the runtime folder can't be used.
    """
    paths.make_private(runtime)
    sweep(runtime)
    token = secrets.token_hex(8)
    folder = runtime / f"run-{token}"
    lock = folders.make_held(folder)
    boot: dict[str, object] = {"token": token, "runtime": str(runtime), "method": "preload", "plan": plan}
    if audit is not None:
        boot["audited"] = str(audit)
    try:
        (folder / "boot.json").write_text(json.dumps(boot))
        (folder / "stub").write_text(code_bundle.STUB)
        for name, data in code_bundle.files(entries).items():
            (folder / name).write_bytes(data)
        shutil.copyfile(SITE, folder / SITE.name)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        raise AutobrrrError(f"{folder} can't be written: {error.strerror}") from None
    search = [str(folder), *([env[VARIABLE]] if env.get(VARIABLE) else [])]
    environment = {**env, VARIABLE: os.pathsep.join(search)}
    return Prepared(folder=folder, held=[lock], environment=environment)


def listening(pid: int, proc: Path = procfs.PROC, runtime: Path | None = None) -> bool:
    """Whether an agent came with a process, and has a socket.

    Args:
        runtime: Looked at instead of our own runtime folders.
    """
    return any(map(os.path.lexists, _sockets(pid, proc, runtime)))


def connect(
    pid: int,
    proc: Path = procfs.PROC,
    runtime: Path | None = None,
    *,
    sleep: Callable[[float], object] = time.sleep,
) -> socket.socket | None:
    """Connect to it. None where there is none, or nobody listens: it has ended and its socket was left.

    An agent that is just coming up is given a moment.
    """
    for _ in range(CONNECT_TRIES if listening(pid, proc, runtime) else 0):
        for each in _sockets(pid, proc, runtime):
            with contextlib.suppress(OSError):
                return folders.connect(each)
        sleep(CONNECT_PAUSE_S)
    return None


def _sockets(pid: int, proc: Path, runtime: Path | None) -> Iterator[Path]:
    """Where it may listen: our runtime folders, and the one that the process was told of."""
    ticks = procfs.start_ticks(pid, proc)
    if ticks is None:
        return
    name = f"agent-{pid}-{ticks}.sock"
    for folder in [runtime] if runtime is not None else paths.runtime_dirs():
        if paths.objection_to(folder) is None:
            yield folder / name
    for boot in _started_with(pid, proc):
        with contextlib.suppress(OSError):  # the job wrote this path: it may lead nowhere
            fd = folders.open_in(pid, os.path.dirname(boot), os.O_PATH | os.O_DIRECTORY, proc)
            try:
                yield Path(f"/proc/self/fd/{fd}", name)
            finally:
                os.close(fd)


def sweep(runtime: Path, proc: Path = procfs.PROC) -> list[str]:
    """Take away what a `run` and its agents left in a runtime folder when killed; returns the names.

    Folders of runs that nobody supervises, and sockets of dead agents.
    """
    if paths.objection_to(runtime) is not None:
        return []
    names = kernel_text.names(runtime)
    removed = [name for name in names if _socket(runtime / name, proc)]
    return removed + [name for name in filter(_RUN.fullmatch, names) if folders.remove_unheld(runtime / name)]


def _started_with(pid: int, proc: Path) -> list[str]:
    """Folders of runs that a process was started with: one, but for a run within a run."""
    found = procfs.environ(pid, (VARIABLE,), proc).get(VARIABLE)
    entries = [] if found is None else found.raw.split(os.pathsep)
    return [each for each in entries if each.startswith("/") and _RUN.fullmatch(os.path.basename(each))]


def _socket(path: Path, proc: Path) -> bool:
    found = _SOCKET.fullmatch(path.name)
    if found is None or procfs.is_alive(int(found[1]), int(found[2]), proc):
        return False
    with contextlib.suppress(OSError):
        try:
            folders.connect(path).close()
        except ConnectionRefusedError:  # else it is alive in another container
            path.unlink()
            return True
    return False
