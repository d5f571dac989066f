"""A real torchrun job of two ranks: all are attached and compared, the slowest is named."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.torchrun import Torchrun
from support.training import autobrrr

pytestmark = [pytest.mark.integration, pytest.mark.quiet, pytest.mark.nightly, pytest.mark.timeout(900)]


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


LATE = (1, "own_code", "other", "always")


def named(found: dict[str, object]) -> tuple[object, ...]:
    """Which rank is late, and why."""
    late = found["straggler"]
    assert isinstance(late, dict)
    return late["rank"], late["cause"], late["phase"], late["when"]


def listed(folder: Path) -> dict[int, dict[str, object]]:
    """Rank by rank, what `ls` says of the attached ones of this test."""
    jobs = autobrrr(folder, "ls", "--json").json["jobs"]
    assert isinstance(jobs, list)
    return {job["rank"]: job for job in jobs if job["attached"]}


def test_the_rank_that_the_others_wait_for_is_named_from_every_side(
    torchrun: Callable[..., Torchrun], tmp_path: Path
) -> None:
    job = torchrun("--until", str(tmp_path / "never"), BY_HAND="1", LATE_RANK="1", LATE_MS="60")
    watched = autobrrr(tmp_path, "attach", job.pid, "--no-probe", "--for", "40s", "--json")
    assert watched.code == 0, watched.stderr
    lines = [json.loads(line) for line in watched.stdout.splitlines()]
    assert [line["final"] for line in lines] == [False] * (len(lines) - 1) + [True]
    first, second = (one["pid"] for one in ranks_of(lines[-1]))
    assert lines[0]["straggler"] is None  # nobody was compared yet
    assert named(lines[-1]) == LATE, watched.stderr
    assert lines[-1]["pid"] == second  # on top
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
    assert left.stderr.count("detached; no remedy was on") == 2
    assert autobrrr(tmp_path, "detach", job.pid).code == 1

    alone = autobrrr(tmp_path, "diagnose", str(first), "--no-probe", "--json").json
    assert alone["regime"] == "communication", alone["reason"]
    assert alone["straggler"] is None  # the other one has no session: not compared
    assert [(one["pid"], one["slowest"]) for one in ranks_of(alone)] == [(first, None)]

    every = autobrrr(tmp_path, "diagnose", job.pid, "--no-probe", "--json")
    assert every.code == 0, every.stderr
    assert named(every.json) == LATE, every.stderr
    late = every.json["straggler"]
    assert isinstance(late, dict)
    assert (late["compared"], late["world_size"]) == (2, 2)
    assert late["costs_ns"] > 25_000_000
    assert [one["phase"] for one in ranks_of(every.json)] == [None, "other"]
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
    assert [one["slowest"] for one in ranks_of(found.json)] == [False, False]
    late = found.json["straggler"]
    assert isinstance(late, dict), found.stderr
    assert late["rank"] is None, late
    assert late["why"] in ("alike", "collectives", "in_turn")

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
