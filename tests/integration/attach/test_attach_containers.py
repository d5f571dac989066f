"""Containers of many kinds: attach works in each that can allow it; the doctor names what is in the way."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from autobrrr.errors import EXIT_CANNOT_ATTACH, EXIT_GONE
from support.attach import KINDS, STANDIN, child, eventually, interpreters
from support.day_cases import by_day
from support.outside import containers
from support.outside.containers import (
    DOCKER,
    DOCKER_INSIDE,
    IN,
    OWN_PROC,
    OWN_TMP,
    READ_ONLY,
    UID,
    UNPRIVILEGED,
)
from support.training import ran

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(containers.available() != "", reason=containers.available()),
]

PROJECT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A job in a container, and from where it is looked at.

    Attributes:
        job: What stands before the job's interpreter.
        enter: Flags of `nsenter` that bring the tool to the job; without any it stays outside.
        tool: What stands before the tool's interpreter.
    """

    job: Sequence[str] = DOCKER
    enter: Sequence[str] = ()
    tool: Sequence[str] = ()


ALLOW = {
    "from outside": Setup(),
    "as docker exec": Setup(
        job=DOCKER_INSIDE, enter=IN, tool=containers.with_capabilities(containers.DOCKER_CAPABILITIES)
    ),
    "read-only root": Setup(job=(*OWN_PROC, *containers.mounts(READ_ONLY, OWN_TMP))),
    "no folder but /dev/shm": Setup(
        job=(*OWN_PROC, *containers.mounts(READ_ONLY, "mount -t tmpfs -o ro none /tmp"))
    ),
    "a noexec /tmp": Setup(job=(*OWN_PROC, *containers.mounts("mount -t tmpfs -o noexec,nosuid none /tmp"))),
    "rootless": Setup(
        job=(*containers.unshared("-U", "-r", "-m", "-p", "--mount-proc"), *containers.mounts(OWN_TMP))
    ),
    "nested": Setup(job=(*DOCKER, *DOCKER)),
    "no privileges, same user": Setup(job=UNPRIVILEGED, enter=IN, tool=containers.as_user(UID)),
    "another user, from outside": Setup(job=UNPRIVILEGED),
    "an ephemeral container": Setup(enter=("-p",), tool=("unshare", "-m", "--mount-proc")),
    "a network of its own": Setup(job=("unshare", "-n", *DOCKER)),
}
BLOCK = {
    "no folder to write": (
        Setup(
            job=(
                *OWN_PROC,
                *containers.mounts(
                    READ_ONLY, "mount -t tmpfs -o ro none /tmp", "mount -t tmpfs -o ro none /dev/shm"
                ),
            )
        ),
        ("folder", "Read-only file system", "--tmpfs /tmp"),
    ),
    "a filter that refuses ptrace": (
        Setup(
            job=DOCKER_INSIDE,
            enter=IN,
            tool=(
                *containers.with_capabilities(containers.DOCKER_CAPABILITIES),
                *containers.refusing(containers.PTRACE),
            ),
        ),
        ("seccomp", "refuses ptrace", "--security-opt seccomp=unconfined"),
    ),
    "dropped capabilities": (
        Setup(enter=IN, tool=containers.with_capabilities(containers.DOCKER_CAPABILITIES)),
        ("permission", "CAP_SYS_PTRACE", "--cap-add SYS_PTRACE"),
    ),
    "another user, inside": (
        Setup(job=UNPRIVILEGED, enter=IN, tool=containers.as_user(UID + 1)),
        ("owner", f"uid {UID}", f"docker exec -u {UID}"),
    ),
    "pids of its own": (
        Setup(enter=("-m",), tool=containers.unshared("-p", "--mount-proc")),
        ("process", "in this container", "--pid=container:NAME"),
    ),
    "/proc of others": (Setup(tool=containers.unshared("-p")), ("process", "/proc here", "mount -t proc")),
    "root of a user namespace": (
        Setup(enter=IN, tool=("unshare", "-U", "-r")),
        ("permission", "user namespace", "podman unshare"),
    ),
}


COMMON = {"from outside", "as docker exec", "dropped capabilities"}


@dataclass(frozen=True, slots=True)
class Looked:
    """A running job, and the words that run a tool where it is looked at."""

    pid: int
    words: list[str]
    environment: dict[str, str]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return ran([*self.words, sys.executable, *words], env=self.environment, timeout=120)

    def doctor(self) -> tuple[int, dict[str, dict[str, str]]]:
        done = self.run("-m", "autobrrr", "doctor", str(self.pid), "--json")
        return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


@contextmanager
def running(
    setup: Setup, tmp_path: Path, source: str | None = None, python: str = sys.executable
) -> Iterator[Looked]:
    """A job in a container; nothing of it is left."""
    standin = python == sys.executable
    with child("training", python, prefix=tuple(setup.job), standin=standin, source=source) as started:
        pid = containers.training_process(started.pid)
        try:
            entered = ["nsenter", "-t", str(pid), *setup.enter, "--"] if setup.enter else []
            yield Looked(
                containers.pid_inside(pid) if "-p" in setup.enter else pid,
                [*entered, *setup.tool],
                {
                    **os.environ,
                    "PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}",
                    "XDG_CACHE_HOME": str(tmp_path / "cache"),
                },
            )
            assert started.alive()
        finally:
            shutil.rmtree(f"/tmp/autobrrr-{UID}", ignore_errors=True)
            os.kill(pid, 9)  # a change of the user has taken away what would end it with `unshare`


# The way in and out again, with what is left.
GO_IN = """
import os, sys, tempfile
from pathlib import Path
from autobrrr.attach import door
from autobrrr.attach.enter import enter
from support.attach import probe_bundle
door.go_through(int(sys.argv[1]))
with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
    link = enter(int(sys.argv[1]), entries=probe_bundle(Path(folder) / "probe"))
    print(link.facts.torch, link.facts.pid)
    link.socket.close()
"""


@pytest.mark.parametrize("name", by_day(ALLOW, COMMON.__contains__))
def test_attach_works_where_a_container_allows_it(name: str, tmp_path: Path) -> None:
    with running(ALLOW[name], tmp_path) as looked:
        code, checks = looked.doctor()
        assert code == 0
        assert not [check for check in checks.values() if check["status"] == "fail"]
        done = looked.run("-c", GO_IN, str(looked.pid))
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[-1]) == (1 if "-p" in ALLOW[name].job else looked.pid)


@pytest.mark.parametrize("name", by_day(BLOCK, COMMON.__contains__))
def test_the_doctor_names_what_a_container_has_in_the_way(name: str, tmp_path: Path) -> None:
    setup, (check, detail, fix) = BLOCK[name]
    with running(setup, tmp_path) as looked:
        code, checks = looked.doctor()
        (failed,) = [each for each in checks.values() if each["status"] == "fail"]
        assert failed["name"] == check
        assert detail in failed["detail"]
        assert fix in failed["fix"]
        done = looked.run("-c", GO_IN, str(looked.pid))
        assert failed["detail"] in done.stderr
        assert code == (EXIT_GONE if "there is no process" in failed["detail"] else EXIT_CANNOT_ATTACH)


@pytest.mark.nightly
def test_another_system_inside(tmp_path: Path) -> None:
    """Another C library and another Python, started by its linker, that see nothing of the machine."""
    python = interpreters().get("3.14")
    root = Path(python).parents[2] if python else Path("/")
    linker = "/lib64/ld-linux-x86-64.so.2"
    if root == Path("/") or not (root / linker[1:]).exists():
        pytest.skip("no other system's root here")
    job = (
        *OWN_PROC,
        *containers.mounts(f"mount --bind {STANDIN} {root}/home", f"mount -t tmpfs none {root}/tmp"),
        *("chroot", str(root), linker),
    )
    source = f"import sys; sys.path.insert(0, '/home')\n{KINDS['training']}"
    with running(Setup(job=job), tmp_path, source, "/usr/bin/python3.14") as looked:
        maps = Path(f"/proc/{looked.pid}/maps")
        eventually(lambda: "libtorch_python" in maps.read_text())
        code, checks = looked.doctor()
        assert code == 0, [each for each in checks.values() if each["status"] == "fail"]
        done = looked.run("-c", GO_IN, str(looked.pid))
        assert done.returncode == 0, done.stderr
