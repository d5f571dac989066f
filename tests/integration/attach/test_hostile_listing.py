"""What any user's process shows never holds up or fools the list of jobs that root makes: a made-up /proc."""

import os
from pathlib import Path

import pytest

from autobrrr.attach import job_listing
from autobrrr.cli.verbs import ls
from autobrrr.readable import readable
from autobrrr.records import JobLine
from support.machines.fake_proc import FakeProc

pytestmark = pytest.mark.integration
PID = 4242


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    made = FakeProc(tmp_path)
    made.add(PID, torch=True, state="T")
    return made


@pytest.fixture
def version(proc: FakeProc) -> Path:
    """The file that says which torch the process has; it is the other user's."""
    folder = proc.root / str(PID) / "root" / "site" / "torch"
    folder.mkdir(parents=True)
    return folder / "version.py"


def row(proc: FakeProc) -> JobLine:
    (found,) = job_listing.find(proc.root, own_pid=99)
    return found


def test_a_version_that_would_hold_up_its_reader_is_not_read(proc: FakeProc, version: Path) -> None:
    os.mkfifo(version)
    assert row(proc).torch is None


def test_a_link_to_what_root_alone_may_read_shows_nothing_of_it(proc: FakeProc, version: Path) -> None:
    version.with_name("secret").write_text("__version__ = '2.8.1'\n")
    version.symlink_to("secret")
    assert row(proc).torch is None


def test_escape_sequences_of_a_process_don_t_reach_the_terminal(proc: FakeProc, version: Path) -> None:
    version.write_text("__version__ = '2.3\x1b[31mRED\x07'\n")
    assert row(proc).torch == r"2.3\x1b[31mRED\x07"
    shown = ls.table([row(proc)])
    assert readable(shown.replace("\n", "")) == shown.replace("\n", "")
