"""Targets for attach tests: small Python processes of many kinds and versions, and a probe to inject."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach.bundle import code_bundle
from support.day_cases import by_day
from support.processes import warm_python

STANDIN = Path(__file__).resolve().parent / "standin"
PACKAGE = Path(code_bundle.__file__).resolve().parents[2]
RELEASES = ("3.10", "3.11", "3.12", "3.13", "3.14")
RARE = {"3.10", "3.12", "3.14"} - {f"{sys.version_info[0]}.{sys.version_info[1]}"}
VERSIONS = by_day(RELEASES, lambda release: release not in RARE)
# Programs of further Pythons, with ":" between them; `.ci/python-3.14` makes one.
MORE_PYTHONS = "AUTOBRRR_TEST_PYTHONS"

# Every target prints "ready" and then works until it is killed; it counts in `beats`.
TRAINS = (
    "import threading\n"
    "def train():\n    n = 0\n    while True: n += 1\n"
    "thread = threading.Thread(target=train, daemon=True); thread.start()\n"
)
# How a main thread sleeps while another thread trains.
SLEEPS = {
    "join": "thread.join()",
    "event": "threading.Event().wait()",
    "event_timeout": "threading.Event().wait(1e5)",
    "queue": "import queue; queue.Queue().get()",
    "sleep": "import time; time.sleep(1e6)",
    "pause": "import signal; signal.pause()",
    "read": "import os; os.read(os.pipe()[0], 1)",
    "connection": "import multiprocessing; one, other = multiprocessing.Pipe(); one.recv()",
    "select": "import select; select.select([], [], [], 1e6)",
    "asyncio": "import asyncio\nasync def main(): await asyncio.Event().wait()\nasyncio.run(main())",
    # As a kernel of a notebook: it waits for a message, and for a heartbeat now and then.
    "kernel": "import selectors, socket\none, other = socket.socketpair()\n"
    "loop = selectors.DefaultSelector(); loop.register(one, selectors.EVENT_READ)\n"
    "while True: loop.select(3600)",
}
KINDS = {
    "spin": "while True:\n    for i in range(20000): beats += i",
    "malloc": "while True:\n    kept = [bytes(n) for n in range(600, 4000, 7)]; beats += 1",
    "gil_held": "import re\nwhile True:\n    re.match(r'(a?){21}a{21}', 'a' * 21); beats += 1",
    "compiling": "text = '\\n'.join(f'x{n} = [i * {n} for i in range(3)]' for n in range(800))\n"
    "while True:\n    compile(text, 'made', 'exec'); beats += 1",
    "short_sleeps": "import time\nwhile True:\n    time.sleep(0.05); beats += 1",
    "asleep": "import time\nwhile True:\n    time.sleep(1000)",
    "locked": "import _thread\nlock = _thread.allocate_lock(); lock.acquire()\nlock.acquire()",
    "sub_thread": TRAINS + SLEEPS["join"],
    "with_sleeper": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    "while True:\n    for i in range(20000): beats += i",
    "training": "import torch\n"
    "parameter = torch.Tensor(1.0)\n"
    "optimizer = torch.optim.SGD([parameter])\n"
    "while True:\n    torch.Tensor().backward(); optimizer.step(); beats += 1",
}
NEEDS_TORCH = {"training"}


def interpreters() -> dict[str, str]:
    """Pythons of this machine by version; the running one, pyenv's, and those on PATH."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    more = [Path(named) for named in os.environ.get(MORE_PYTHONS, "").split(":") if named]
    for version in RELEASES:
        places = [
            *(place for place in more if place.name == f"python{version}"),
            *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")),
            *(Path(folder) / f"python{version}" for folder in os.environ.get("PATH", "").split(":")),
        ]
        for place in places:
            if version not in found and "shims" not in place.parts and place.exists():
                found[version] = str(place)
    return found


@dataclass
class Child:
    """A running target."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> bool:
        return self.process.poll() is None

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))


@contextmanager
def child(
    kind: str,
    python: str = sys.executable,
    *,
    standin: bool = False,
    real: bool = False,
    prefix: tuple[str, ...] = (),
    source: str | None = None,
    words: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
) -> Iterator[Child]:
    """Start a target and wait until it works.

    Args:
        kind: One of `KINDS`, or any name where `source` is given.
        standin: The stand-in torch is imported first.
        real: The real torch is there already: forked from a process that has imported it.
        prefix: What stands before the interpreter (`unshare -m`).
        words, options: Arguments of the script, and of the interpreter.
    """
    body = KINDS[kind] if source is None else source
    # A source of its own says for itself where its torch is.
    first = "import torch\n" if standin or (source is None and kind in NEEDS_TORCH) else ""
    text = f"{first}beats = 0\nprint('ready', flush=True)\n{body}\n"
    environment = {**os.environ, "PYTHONPATH": str(STANDIN) if standin or kind in NEEDS_TORCH else ""}
    command = [*prefix, python, *options, "-c", text, *words]
    if real:
        process = warm_python.start(command, {**environment, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)
    else:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
    try:
        assert process.stdout.readline() == "ready\n", process.communicate()
        time.sleep(0.05)  # out of the print, into the work
        yield Child(process)
    finally:
        process.kill()
        process.communicate()


def eventually(holds: Callable[[], bool], timeout_s: float = 90) -> None:
    """Wait until something holds; the limit is for a crowded machine, not what is expected."""
    end_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def leaves(file: Path, words: str = "ran") -> str:
    """Source to inject: writes a file in one go."""
    return (
        "import os\n"
        f"with open({str(file) + '.part'!r}, 'w') as out: out.write({words!r})\n"
        f"os.rename({str(file) + '.part'!r}, {str(file)!r})\n"
    )


PROBE_AGENT = """
import os, socket, sys, threading
from .remedies import registry
from .wire import framing


def start(boot):
    link = socket.socket(socket.AF_UNIX)
    link.connect(boot["link"])
    ring = os.memfd_create("ring")
    facts = {
        "pid": os.getpid(), "python": sys.version.split()[0], "torch": sys.modules["torch"].__version__,
        "script": "", "argv": [name for name in sys.modules if "autobrrr" in name], "train_tid": 0,
        "threads": None, "bundle": boot["bundle"], "method": boot["method"],
    }
    hello = framing.encode({"event": "hello", "ring_fd": True, "facts": facts})
    socket.send_fds(link, [hello], [ring])
    os.close(ring)
    try:
        framing.receive(link)
    except framing.Closed:
        link.close()
"""


def probe_bundle(folder: Path, main: str = PROBE_AGENT) -> tuple[code_bundle.Entry, ...]:
    """A bundle with an agent that says hello, waits for the end of the link, and ends."""
    for room in ("", "wire", "live_torch", "remedies"):
        (folder / code_bundle.ROOM / room).mkdir(parents=True, exist_ok=True)
        (folder / code_bundle.ROOM / room / "__init__.py").write_text("")
    for shared in (
        "agent/wire/framing.py",
        "agent/live_torch/torch_types.py",
        "agent/live_torch/module_call_slot.py",
        "agent/live_torch/patches.py",
        "agent/live_torch/compiled_code.py",
        "agent/live_torch/live_job.py",
        "agent/remedies/registry.py",
    ):
        (folder / shared).write_bytes((PACKAGE / shared).read_bytes())
    (folder / code_bundle.ROOM / "entry.py").write_text(main)
    return code_bundle.entries(folder)
