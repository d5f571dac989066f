"""What any user's process shows never stops, holds up or fools the list of jobs that root makes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.attach import doctor_checks, job_listing, job_roles
from autobrrr.cli.verbs import doctor, ls
from autobrrr.readable import readable
from autobrrr.records import JobLine

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to look at another user's process"),
]
USER = 23456
PROGRAM = Path(__file__).parents[2] / "support" / "processes" / "hostile_process.py"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the other user's; pytest's own are closed to it."""
    made = Path(tempfile.mkdtemp(prefix="hostile-"))
    os.chown(made, USER, USER)
    yield made
    shutil.rmtree(made)


@contextlib.contextmanager
def hostile(folder: Path, kind: str, *more: str) -> Iterator[int]:
    """A process of another user; its pid."""
    program = shutil.copy(PROGRAM, folder / "train.py")
    with subprocess.Popen(
        [sys.executable, "-I", "-S", program, kind, str(folder), str(USER), *more],
        env={},
        stdout=subprocess.PIPE,
        cwd="/",
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            yield process.pid
        finally:
            process.kill()


def row(pid: int) -> JobLine:
    (found,) = (each for each in job_listing.find() if each.pid == pid)
    return found


def test_a_version_that_would_hold_up_its_reader_is_not_read(folder: Path) -> None:
    with hostile(folder, "fifo") as pid:
        found = row(pid)
        assert found.torch is None
        assert found.why is not None
        assert "version of its torch can't be read" in found.why
        checks, _ = doctor_checks.of_process(pid)
        assert "version of its torch can't be read" in doctor.table(checks, whole=True)


def test_a_link_to_what_root_alone_may_read_shows_nothing_of_it(folder: Path) -> None:
    secret = Path(tempfile.mkdtemp(prefix="secret-"))
    try:
        (secret / "version").write_text("__version__ = 'hunter2'\n")
        with hostile(folder, "link", str(secret / "version")) as pid:
            found = row(pid)
            assert "hunter2" not in repr(found)
            assert found.why is not None
            secret.chmod(0o755)
            (secret / "version").chmod(0o640)  # root's group is no way in either
            assert "hunter2" not in repr(row(pid))
            (secret / "version").chmod(0o644)
            assert job_roles.torch_of(pid) is not None
            assert "hunter2" in repr(job_roles.torch_of(pid))  # what it may read itself it may show
    finally:
        shutil.rmtree(secret)


def test_escape_sequences_of_a_process_don_t_reach_the_terminal(folder: Path) -> None:
    with hostile(folder, "steering", "\x1b[2J") as pid:
        assert row(pid).torch == r"2.3\x1b[31mRED\x07"
        shown = ls.table([line for line in ls.jobs() if line.pid == pid])
        assert readable(shown.replace("\n", "")) == shown.replace("\n", "")


def test_looking_as_another_user_leaves_this_process_as_it_was(folder: Path) -> None:
    def rights() -> list[str]:
        lines = Path("/proc/self/status").read_text().split("\n")
        return [line for line in lines if line.startswith(("Uid", "Gid", "Groups", "CapEff", "Threads"))]

    before, descriptors = rights(), os.listdir("/proc/self/fd")
    with hostile(folder, "plain") as pid:
        row(pid)
    end_s = time.monotonic() + 5
    while rights() != before and time.monotonic() < end_s:
        time.sleep(0.01)
    assert rights() == before
    assert os.listdir("/proc/self/fd") == descriptors
