"""Machines that are emulated: each has its own processes, network and name; one link joins them.

Namespaces of the kernel, and nothing outside of them: with a machine's first process all others of it end,
and its network goes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.training import JOBS, Outcome, environment

LINK = "eth0"
APART = ("--fork", "--pid", "--net", "--uts", "--mount", "--mount-proc", "--kill-child")
START_S = 180


class NoHosts(Exception):
    """Machines can't be emulated here; the message says why."""


class EmulatedHost:
    """One of them.

    Args:
        folder: For what its sessions and jobs write.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        folder.mkdir()
        self._first = subprocess.Popen(
            ["unshare", *APART, "sh", "-c", f"hostname {name} && echo up && exec cat"],
            stdin=subprocess.PIPE,  # at whose end it ends: the machine lives no longer than the test
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._first.stdout is not None
        if self._first.stdout.readline() != "up\n":
            why = self._first.communicate()[1].strip()
            raise NoHosts(why or "no namespaces")
        children = Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children").read_text().split()
        self.first_pid = int(children[0])

    def inside(self, *words: str) -> list[str]:
        """A command line that runs these words there."""
        return [
            "nsenter",
            "--target",
            str(self.first_pid),
            "--pid",
            "--net",
            "--uts",
            "--mount",
            "--",
            *words,
        ]

    def environ(self, **given: str) -> dict[str, str]:
        temporary = self.folder / "t"
        temporary.mkdir(exist_ok=True)
        return {
            **environment(self.folder),
            "TMPDIR": str(temporary),
            "GLOO_SOCKET_IFNAME": LINK,
            **given,
        }

    def autobrrr(self, *words: str, timeout_s: float = 240) -> Outcome:
        """One command of ours, in a process of its own."""
        done = subprocess.run(
            self.inside(sys.executable, "-m", "autobrrr", *words),
            capture_output=True,
            text=True,
            env=self.environ(),
            timeout=timeout_s,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """One command of ours that goes on, at the head of a process group: end all of that."""
        return subprocess.Popen(
            self.inside(sys.executable, "-m", "autobrrr", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environ(),
            start_new_session=True,
        )

    def processes(self) -> list[str]:
        """Command lines of all that runs there, but for its first process."""
        return [words for _, _, words in self.numbered()]

    def numbered(self) -> list[tuple[int, int, str]]:
        """The same, with the number of each on this machine and on that one."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.first_pid:
                try:
                    same = os.readlink(entry / "ns/pid") == os.readlink(f"/proc/{self.first_pid}/ns/pid")
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    inner = re.findall(r"^NSpid:.*\s(\d+)$", (entry / "status").read_text(), re.MULTILINE)
                except OSError:
                    continue
                if same and inner:
                    found.append((int(entry.name), int(inner[0]), words.strip()))
        return found

    def end(self) -> None:
        """End all that runs there."""
        self._first.send_signal(signal.SIGKILL)
        self._first.communicate()


class EmulatedHosts:
    """Two machines and the link between them, 10.77.0.1 and 10.77.0.2. Raises NoHosts."""

    addresses = ("10.77.0.1", "10.77.0.2")

    def __init__(self, folder: Path) -> None:
        missing = [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]
        if missing:
            raise NoHosts(f"there is no {missing[0]}")
        self.hosts: list[EmulatedHost] = []
        try:
            for name in ("node-a", "node-b"):
                self.hosts.append(EmulatedHost(name, folder / name))
            one, other = self.hosts
            peer = ("peer", "name", LINK, "netns", str(other.first_pid))
            in_its_network = ("nsenter", "--target", str(one.first_pid), "--net", "--")  # pids are ours
            _run([*in_its_network, "ip", "link", "add", LINK, "type", "veth", *peer])
            for host, address in zip(self.hosts, self.addresses, strict=True):
                _run(host.inside("ip", "address", "add", f"{address}/24", "dev", LINK))
                _run(host.inside("ip", "link", "set", LINK, "up"))
                _run(host.inside("ip", "link", "set", "lo", "up"))
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        for host in self.hosts:
            host.end()


class HostsTorchrun:
    """A torchrun on each machine, for one job of `jobs/SCRIPT.py`.

    Attributes:
        pids: Of the launchers, each as its machine sees it.
    """

    PORT = 29611

    def __init__(
        self, hosts: Sequence[EmulatedHost], script: str, *words: str, ranks: int = 2, **given: str
    ) -> None:
        self.lines: list[str] = []
        self.pids: list[str] = []
        self._ranks = ranks * len(hosts)
        self._hosts = hosts
        self._trains = threading.Semaphore(0)
        self._processes = [
            self._start(host, self._command(number, len(hosts), ranks, script, words), given)
            for number, host in enumerate(hosts)
        ]
        self._readers = [
            threading.Thread(target=self._read, args=(each,), daemon=True) for each in self._processes
        ]
        for reader in self._readers:
            reader.start()

    def wait_until_it_trains(self) -> None:
        """All ranks."""
        until_s = time.monotonic() + START_S
        for _ in range(self._ranks):
            assert self._trains.acquire(timeout=max(0.1, until_s - time.monotonic())), self.lines

    def wait_until_it_ends(self) -> list[str]:
        """What all ranks said."""
        for process in self._processes:
            assert process.wait(120) == 0, self.lines
        for reader in self._readers:
            reader.join(30)
        return self.lines

    def _command(
        self, number: int, machines: int, ranks: int, script: str, words: Sequence[str]
    ) -> list[str]:
        where = ("--master_addr", EmulatedHosts.addresses[0], "--master_port", str(self.PORT))
        launcher = ("-m", "torch.distributed.run", "--nnodes", str(machines), "--node_rank", str(number))
        job = (*where, str(JOBS / f"{script}.py"), *words)
        return [sys.executable, *launcher, "--nproc_per_node", str(ranks), *job]

    def _start(
        self, host: EmulatedHost, command: Sequence[str], given: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            host.inside("sh", "-c", 'echo $$; exec "$@"', "sh", *command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=host.environ(**given),
        )
        assert process.stdout is not None
        self.pids.append(process.stdout.readline().strip())
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.rstrip())
            for _ in range(line.count("training")):  # two ranks may write on one line
                self._trains.release()

    def stop_launcher(self, number: int, for_s: float) -> None:
        """And let it go on; what entered its machine for it stops with it."""
        launcher = int(self.pids[number])
        pid = next(outer for outer, inner, _ in self._hosts[number].numbered() if inner == launcher)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(for_s)
        os.kill(pid, signal.SIGCONT)
        self._processes[number].send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Once the machines have ended: nothing of it is left to be waited for."""
        for process in self._processes:
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join(10)


KEYS = """
import sys
from torch.distributed import TCPStore
store = TCPStore("10.77.0.1", int(sys.argv[1]), is_master=False, wait_for_workers=False)
ranks = range(4)
words = ("notes/ready", "notes/steps", "notes/follows", "here")
names = ["notes/round", *(f"{word}/{rank}" for word in words for rank in ranks)]
words = ("plan", "outcome", "ready/0", "ready/1")
names += [f"log/{plan}/{word}" for plan in range(1, 100) for word in words]
print(*(name for name in names if store.check(["autobrrr/ranks/0/" + name])))
"""


def kept_keys(hosts: EmulatedHosts, job: HostsTorchrun) -> list[str]:
    """Which of our keys stand in the job's store."""
    command = hosts.hosts[1].inside(sys.executable, "-c", KEYS, str(job.PORT))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.split()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoHosts(done.stderr.strip() or f"{command[-1]} failed")
