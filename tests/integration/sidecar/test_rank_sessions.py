"""A real torchrun job of two ranks: all are attached, one at a time is measured, the slowest is named."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.training import JOBS, autobrrr, environment

pytestmark = [pytest.mark.integration, pytest.mark.quiet, pytest.mark.timeout(900)]


class Torchrun:
    """A launcher of two ranks of `jobs/parallel.py`, started anew for each test."""

    def __init__(self, folder: Path, *words: str, **given: str) -> None:
        scratch = folder / "t"
        scratch.mkdir(exist_ok=True)
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
        self.process = subprocess.Popen(
            [sys.executable, *launcher, str(JOBS / "parallel.py"), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**environment(folder), "TMPDIR": str(scratch), **given},
        )
        self.lines: list[str] = []
        self._trains = threading.Semaphore(0)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_it_trains(self) -> None:
        for _ in range(2):
            assert self._trains.acquire(timeout=90), self.lines

    @property
    def pid(self) -> str:
        return str(self.process.pid)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()  # the launcher ends its ranks
        self.process.wait(60)
        self._reader.join(10)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            for _ in range(line.count("training")):  # two ranks may write on one line
                self._trains.release()


@pytest.fixture
def torchrun(tmp_path: Path) -> Iterator[Callable[..., Torchrun]]:
    started: list[Torchrun] = []

    def start(*words: str, **given: str) -> Torchrun:
        started.append(Torchrun(tmp_path, *words, **given))
        started[-1].wait_until_it_trains()
        return started[-1]

    yield start
    for each in started:
        each.kill()


def ranks_of(found: dict[str, object]) -> list[dict[str, object]]:
    ranks = found["ranks"]
    assert isinstance(ranks, list)
    return ranks


def listed(folder: Path) -> dict[int, dict[str, object]]:
    """Rank by rank, what `ls` says of the attached ones of this test."""
    jobs = autobrrr(folder, "ls", "--json").json["jobs"]
    assert isinstance(jobs, list)
    return {job["rank"]: job for job in jobs if job["attached"]}


def test_the_rank_that_the_others_wait_for_is_named_from_every_side(
    torchrun: Callable[..., Torchrun], tmp_path: Path
) -> None:
    job = torchrun("--until", str(tmp_path / "never"), BY_HAND="1", LATE_RANK="1", LATE_MS="60")
    watched = autobrrr(tmp_path, "attach", job.pid, "--no-probe", "--for", "2s", "--json")
    assert watched.code == 0, watched.stderr
    lines = [json.loads(line) for line in watched.stdout.splitlines()]
    assert [line["final"] for line in lines] == [False] * (len(lines) - 1) + [True]
    first, second = (one["pid"] for one in ranks_of(lines[-1]))

    # Each is measured in its turn.
    deadline_s = time.monotonic() + 90
    while [each["slowest"] for each in listed(tmp_path).values()].count(None):
        assert time.monotonic() < deadline_s
    found = listed(tmp_path)
    assert {rank: (each["pid"], each["slowest"]) for rank, each in found.items()} == {
        0: (first, False),
        1: (second, True),
    }
    assert found[0]["job"] == found[1]["job"]
    told = autobrrr(tmp_path, "diagnose", str(first))  # measured anew
    assert "rank 1 is slowest: the others wait" in told.stdout, told.stdout
    left = autobrrr(tmp_path, "detach", job.pid)
    assert left.code == 0, left.stderr
    assert left.stderr.count("detached; no remedy was applied") == 2
    assert autobrrr(tmp_path, "detach", job.pid).code == 1

    alone = autobrrr(tmp_path, "diagnose", str(first), "--no-probe", "--json").json
    assert alone["regime"] == "communication", alone["reason"]
    assert alone["slowest"] is None  # the other one has no session: not measured
    assert [(one["pid"], one["slowest"]) for one in ranks_of(alone)] == [(first, None)]

    every = autobrrr(tmp_path, "diagnose", job.pid, "--no-probe", "--json")
    assert every.code == 0, every.stderr
    slowest = every.json["slowest"]
    assert isinstance(slowest, dict)
    assert (slowest["rank"], slowest["compared"], slowest["world_size"]) == (1, 2, 2), slowest
    assert slowest["waited_ns"] > 25_000_000
    assert every.json["pid"] == second  # on top
    assert [one["slowest"] for one in ranks_of(every.json)] == [False, True]
    assert ranks_of(every.json)[0]["regime"] == "communication"
    assert job.process.poll() is None
    assert not list((tmp_path / "run" / "autobrrr").glob("ranks-*"))


def test_of_even_ranks_none_is_marked_and_one_that_can_not_be_attached_is_said(
    torchrun: Callable[..., Torchrun], tmp_path: Path
) -> None:
    # Sleeping ranks do not take CPUs from each other: even on a crowded machine they stay alike.
    job = torchrun("--until", str(tmp_path / "never"), EACH_MS="60")
    found = autobrrr(tmp_path, "diagnose", job.pid, "--no-probe", "--json")
    assert found.code == 0, found.stderr
    slowest = found.json["slowest"]
    assert isinstance(slowest, dict), found.stderr
    assert (slowest["rank"], slowest["waited_ns"]) == (None, None), found.json
    assert slowest["why"]
    assert [one["slowest"] for one in ranks_of(found.json)] == [False, False]

    # Its session does more to the job than is asked for below: it is not joined.
    other, busy = (one["pid"] for one in ranks_of(found.json))
    assert autobrrr(tmp_path, "attach", str(busy), "--no-probe", "--for", "1s", "--json").code == 0
    found = autobrrr(tmp_path, "attach", job.pid, "--readonly", "--for", "1s", "--json")
    assert found.code == 3, found.stderr
    assert f"process {busy} already has a session, which was started without --readonly" in found.stderr
    lines = {line["pid"]: line for line in ranks_of(found.json)}
    assert "without --readonly" in str(lines[busy]["why"])
    assert lines[other]["why"] is None
    assert found.json["pid"] == other
    refused = autobrrr(tmp_path, "attach", job.pid, "--recipe", "cpu-only")
    assert refused.code == 2
    assert str(other) in refused.stderr
    assert autobrrr(tmp_path, "detach", job.pid).code == 0
