"""Jobs that can't be attached to, for real: each ends at once with its cause and remedy, and trains on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autobrrr.attach import job_limits
from autobrrr.attach.enter import enter
from autobrrr.errors import CannotAttach
from autobrrr.machine import control_groups
from support.attach import KINDS, Child, child, eventually, probe_bundle
from support.outside.containers import SECCOMP
from support.training import TrainingJob, autobrrr, environment

pytestmark = pytest.mark.integration

V1, V2 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")

REAL = (
    "import torch\nmodel = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
    "def train():\n    while True: model(torch.ones(2, 4)).sum().backward(); optimizer.step()\n"
)


@contextmanager
def trains(first: str = "", *, real: bool = False) -> Iterator[Child]:
    """A process that trains, with the stand-in torch or the real one, once `first` has run."""
    before, loop = (REAL, "train()") if real else ("import torch", KINDS["training"])
    source = f"{before}\n{first}\nprint('works', flush=True)\n{loop}"
    with child("refused", source=source, standin=not real, real=real) as target:
        assert target.process.stdout.readline() == "works\n"
        yield target
        assert target.alive()


def refusal(target: Child, tmp_path: Path, *, shipped: bool = False) -> CannotAttach:
    """What `enter` says, with the probe agent or the shipped one; it leaves nothing."""
    entries = None if shipped else probe_bundle(tmp_path / "probe")
    with pytest.raises(CannotAttach) as caught:
        enter(target.pid, entries=entries)
    assert caught.value.hint
    return caught.value


SOCKET = 41


@pytest.mark.parametrize(
    ("action", "words"),
    [("", "its seccomp filter refuses it.*socket"), (", action=0x80000000", "kills it for socket")],
)
def test_a_seccomp_filter_is_named_with_what_it_refuses(action: str, words: str, tmp_path: Path) -> None:
    if action and os.geteuid() != 0:
        pytest.skip("the kernel shows filters to root alone")
    with trains(f"{SECCOMP}refuse({SOCKET}{action})", real=True) as target:
        said = refusal(target, tmp_path, shipped=True)
        assert re.search(words, said.message)
        assert "profile" in said.hint


SYMLINK, SYMLINKAT, PIDFD_OPEN = 88, 266, 434


# Reads everything, writes nowhere.
LANDLOCK = """
import ctypes, struct
libc = ctypes.CDLL(None)
rules = libc.syscall(444, struct.pack("Q", 0b1111111110010), 8, 0)
assert libc.prctl(38, 1, 0, 0, 0) == 0
libc.syscall(446, rules, 0)  # a kernel without it lets everything pass
"""


@pytest.mark.parametrize("first", [f"{SECCOMP}refuse({SYMLINK}, {SYMLINKAT}, {PIDFD_OPEN})", LANDLOCK])
def test_a_job_that_may_make_no_link_or_write_nowhere_is_entered_all_the_same(
    first: str, tmp_path: Path
) -> None:
    with trains(first, real=True) as target:
        threads = target.threads()
        link = enter(target.pid)
        link.socket.close()
        os.close(link.ring_fd)
        eventually(lambda: target.threads() == threads)


def test_a_job_out_of_descriptors_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take = (
        "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\nheld = []\n"
        "try:\n    while True: held.append(os.open('/dev/null', 0))\nexcept OSError: pass"
    )
    with trains(take) as target:
        assert "has no file descriptor" in refusal(target, tmp_path / "seen").message
        # Where it had more when it was looked at, the agent itself says so.
        monkeypatch.setattr("autobrrr.attach.triage.CHECKS", ())
        said = refusal(target, tmp_path / "met")
        assert "Too many open files" in said.message
        assert f"autobrrr doctor {target.pid} says which limit" in said.hint


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A control group of a v1 controller (or of v2) of our own."""
    top = V2 if request.param == "v2" else V1 / request.param
    folder = top / f"refused-{os.getpid()}"
    try:
        folder.mkdir()
        if not (folder / "cgroup.procs").exists():
            raise OSError("not mounted")
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    eventually(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


@pytest.mark.parametrize("group", ["freezer", "v2"], indirect=True)
def test_a_frozen_job_is_told_so(group: Path, tmp_path: Path) -> None:
    file, on, off = (
        ("freezer.state", "FROZEN", "THAWED") if "freezer" in group.parts else ("cgroup.freeze", "1", "0")
    )
    with trains() as target:
        (group / "cgroup.procs").write_text(str(target.pid))
        (group / file).write_text(on)
        try:
            eventually(lambda: control_groups.is_frozen(target.pid))
            said = refusal(target, tmp_path)
        finally:
            (group / file).write_text(off)
        assert "frozen by its control group" in said.message


@pytest.mark.parametrize("group", ["memory"], indirect=True)
def test_a_job_at_its_memory_limit_is_refused_and_lives(group: Path, tmp_path: Path) -> None:
    with trains() as target:
        (group / "cgroup.procs").write_text(str(target.pid))
        (group / "memory.limit_in_bytes").write_text(str(job_limits.MEMORY_BYTES // 2))
        said = refusal(target, tmp_path)
        assert "of memory left, and kills beyond" in said.message
        assert "oom_kill 0" in (group / "memory.oom_control").read_text()


@pytest.mark.parametrize("kind", ["a file", "read-only", "somebody else's"])
def test_a_runtime_folder_that_can_not_be_used_is_named(
    kind: str, tmp_path: Path, job: Callable[..., TrainingJob]
) -> None:
    trained = job("matmul")
    runtime = Path(environment(tmp_path)["XDG_RUNTIME_DIR"])
    if kind == "a file":
        (runtime / "autobrrr").write_text("")
    elif os.geteuid() != 0:
        pytest.skip("needs root")
    elif kind == "somebody else's":
        (runtime / "autobrrr").mkdir()
        os.chown(runtime / "autobrrr", 23456, -1)
    words = [sys.executable, "-m", "autobrrr", "diagnose", str(trained.pid), "--no-probe", "--json"]
    if kind == "read-only":
        mount = 'mount -t tmpfs -o ro none "$XDG_RUNTIME_DIR" && exec "$0" "$@"'
        words = ["unshare", "-m", "sh", "-c", mount, *words]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(tmp_path), check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("{")]
    said = json.loads(line)
    assert str(runtime / "autobrrr") in said["error"]
    assert "XDG_RUNTIME_DIR" in said["hint"]
    assert trained.alive()


def test_ctrl_c_in_the_first_seconds_leaves_nothing(tmp_path: Path, job: Callable[..., TrainingJob]) -> None:
    trained = job("matmul")
    began = Path(f"/proc/{trained.pid}/task")
    threads = len(os.listdir(began))
    # While it starts, enters, and waits for a verdict.
    for verb, wait_s in (("attach", 0.3), ("diagnose", 0.9), ("tune", 3.0)):
        command = subprocess.Popen(
            [sys.executable, "-c", OWN, verb, str(trained.pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(tmp_path),
        )
        assert command.stdout.readline() == "up\n"
        time.sleep(wait_s)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=20)
        assert command.returncode == 130, said
        assert "Traceback" not in said
        if verb == "attach":
            autobrrr(tmp_path, "detach", str(trained.pid))
        eventually(lambda: not list((tmp_path / "run" / "autobrrr").glob("[0-9]*")))
    eventually(lambda: len(os.listdir(began)) == threads)
    assert trained.alive()


# From where the program's own first line is read; before it Python itself starts.
OWN = "import sys; from autobrrr.__main__ import main; print('up', flush=True); sys.exit(main())"
