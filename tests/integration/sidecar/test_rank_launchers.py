"""Ranks whose launcher is killed, or starts them again; two jobs on one machine are each compared alone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.attach import eventually
from support.torchrun import RESTARTS_ONCE, TORCHRUN, Torchrun
from support.training import autobrrr, environment, sidecars

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
QUICK = ("--no-probe", "--for", "8s", "--json")


@pytest.fixture
def torchrun(tmp_path: Path) -> Iterator[Callable[..., tuple[Torchrun, list[int]]]]:
    started: list[Torchrun] = []

    def start(*launcher: str) -> tuple[Torchrun, list[int]]:
        job = Torchrun(tmp_path, "--until", str(tmp_path / "never"), launcher=launcher or TORCHRUN)
        started.append(job)
        return job, job.wait_until_it_trains()

    yield start
    for each in started:
        each.kill()
    eventually(lambda: not sidecars(tmp_path), 60)


def compared(folder: Path, pid: int | str) -> list[int]:
    """The ranks that a diagnosis has compared."""
    found = autobrrr(folder, "diagnose", str(pid), *QUICK)
    assert found.code == 0, found.stderr
    assert isinstance(found.json["straggler"], dict), found.stderr
    ranks = found.json["ranks"]
    assert isinstance(ranks, list)
    return [each["pid"] for each in ranks]


def cpu_s(pid: int) -> float:
    """CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def goes_on(pid: int) -> bool:
    """Whether a rank trains: it takes CPU time."""
    before_s = cpu_s(pid)
    deadline_s = time.monotonic() + 60
    while cpu_s(pid) < before_s + 0.1 and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return cpu_s(pid) >= before_s + 0.1


def test_ranks_whose_launcher_was_killed_train_on_and_are_left_without_a_trace(
    torchrun: Callable[..., tuple[Torchrun, list[int]]], tmp_path: Path
) -> None:
    job, ranks = torchrun()
    assert autobrrr(tmp_path, "attach", job.pid, *QUICK[:1], "--for", "1s", "--json").code == 0
    job.process.kill()  # with it goes the store by which ranks agree
    job.process.wait(60)
    tuned = autobrrr(tmp_path, "tune", str(ranks[0]), "--for", "6s", "--only", "gc.freeze", "--json")
    assert tuned.code in (0, 1), tuned.stderr
    for pid in ranks:
        assert autobrrr(tmp_path, "detach", str(pid)).code == 0
        assert goes_on(pid)
    assert not sidecars(tmp_path)


@pytest.mark.nightly
def test_two_jobs_on_one_machine_are_compared_each_by_itself(
    torchrun: Callable[..., tuple[Torchrun, list[int]]], tmp_path: Path
) -> None:
    one, its = torchrun()
    other, others = torchrun()
    assert autobrrr(tmp_path, "attach", other.pid, *QUICK[:1], "--for", "1s", "--json").code == 0
    assert compared(tmp_path, one.pid) == its
    assert compared(tmp_path, others[0]) == others  # with the session of its own sibling
    assert autobrrr(tmp_path, "detach", other.pid).code == 0


@pytest.mark.nightly
def test_a_tuning_ends_with_ranks_that_are_restarted_and_the_new_ones_are_diagnosed(
    torchrun: Callable[..., tuple[Torchrun, list[int]]], tmp_path: Path
) -> None:
    job, ranks = torchrun("-c", RESTARTS_ONCE)
    tuning = subprocess.Popen(
        [sys.executable, "-m", "autobrrr", "tune", job.pid, "--for", "5m", "--only", "optimizer.fused"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    try:
        said = []
        for line in tuning.stderr:
            said.append(line)
            if "trying" in line:
                break
        else:
            raise AssertionError(said)
        os.kill(ranks[1], signal.SIGKILL)
        said += tuning.communicate(timeout=120)[1]
    finally:
        tuning.kill()
        tuning.wait()
    assert tuning.returncode not in (0, 1), "".join(said)
    again = job.wait_until_it_trains()
    assert not set(again) & set(ranks)
    eventually(lambda: not sidecars(tmp_path), 60)
    assert compared(tmp_path, job.pid) == again
    assert all(goes_on(pid) for pid in again)
