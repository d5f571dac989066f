"""What any user's process shows never stops, holds up or fools the list of jobs that root makes."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.cli.verbs import ls
from autobrrr.readable import readable
from autobrrr.records import JobLine

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to look at another user's process"),
    pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python that all can run"),
]
USER = 23456
PROGRAM = Path(__file__).parents[2] / "support" / "processes" / "hostile_process.py"


@pytest.fixture(scope="module", autouse=True)
def nothing_stays() -> Iterator[None]:
    """A user without a home has caches and logs in /tmp."""
    yield
    shutil.rmtree(f"/tmp/autobrrr-{USER}", ignore_errors=True)


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
        ["/usr/bin/python3", "-I", "-S", program, kind, str(folder), str(USER), *more],
        env={},
        stdout=subprocess.PIPE,
        cwd="/",
    ) as process:
        try:
            assert process.stdout.readline() == b"up\n"
            yield process.pid
        finally:
            process.kill()


def row(pid: int) -> JobLine:
    (found,) = (each for each in ls.jobs() if each.pid == pid)
    return found


def doctor_says(pid: int) -> str:
    words = [sys.executable, "-m", "autobrrr", "doctor", str(pid), "-v"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def test_a_version_that_would_hold_up_its_reader_is_not_read(folder: Path) -> None:
    with hostile(folder, "fifo") as pid:
        found = row(pid)
        assert found.torch is None
        assert "PyTorch is loaded" in doctor_says(pid)


def test_a_link_to_what_root_alone_may_read_shows_nothing_of_it(folder: Path) -> None:
    secret = Path(tempfile.mkdtemp(prefix="secret-"))
    try:
        (secret / "version").write_text("__version__ = 'hunter2'\n")
        with hostile(folder, "link", str(secret / "version")) as pid:
            assert "hunter2" not in repr(row(pid))
            secret.chmod(0o755)
            for mode in (0o640, 0o644):  # no link is followed, whoever may read what it leads to
                (secret / "version").chmod(mode)
                assert row(pid).torch is None
    finally:
        shutil.rmtree(secret)


def test_escape_sequences_of_a_process_don_t_reach_the_terminal(folder: Path) -> None:
    with hostile(folder, "steering", "\x1b[2J") as pid:
        assert row(pid).torch == r"2.3\x1b[31mRED\x07"
        shown = ls.table([row(pid)])
        assert readable(shown.replace("\n", "")) == shown.replace("\n", "")
