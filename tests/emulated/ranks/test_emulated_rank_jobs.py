"""Whole sessions on two ranks over NCCL, each with a device: their limit, a remedy on both, nothing stays."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.torchrun import Torchrun
from support.training import autobrrr

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.timeout(400)]
StartRanks = Callable[..., Torchrun]


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[StartRanks]:
    started: list[Torchrun] = []

    def start(**given: str) -> Torchrun:
        until = ("--until", str(tmp_path / "stop"))
        started.append(Torchrun(tmp_path, *until, script="on_devices", EMU_DEVICES="2", **given))
        started[-1].wait_until_it_trains()
        return started[-1]

    yield start
    for each in started:
        each.kill()


def nothing_stays(job: Torchrun, folder: Path) -> None:
    """Its ranks end by themselves, and hold then what they held before anybody came, and no more memory."""
    (folder / "stop").touch()
    assert job.process.wait(90) == 0, job.lines
    said = "\n".join(job.lines)
    before, after = _held(said, "before"), _held(said, "after")
    assert sorted(before) == sorted(after) == ["0", "1"]
    for rank, (allocated, *rest) in before.items():
        assert after[rank][1:] == tuple(rest)
        assert after[rank][0] <= allocated


def _held(said: str, when: str) -> dict[str, tuple[object, ...]]:
    found = re.findall(rf"rank (\d+) {when} +(\(.*?\))", said)
    return {rank: ast.literal_eval(held) for rank, held in found}


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        pytest.param({"KERNELS": "gemm=1500"}, {"kernels", "unknown"}, marks=pytest.mark.nightly),
        pytest.param(  # beside the backward
            {"KERNELS": "gemm=1500;AllReduce_Sum_f32=1000"}, {"kernels", "unknown"}, marks=pytest.mark.nightly
        ),
        ({"KERNELS": "AllReduce_Sum_f32=20000"}, {"communication"}),
        ({"KERNELS": "gemm=300", "LATE_RANK": "1", "LATE_MS": "40"}, {"host", "unknown"}),
    ],
    ids=["kernels", "collectives beside kernels", "collectives", "a late rank"],
)
def test_ranks_are_limited_by_what_was_planted_and_keep_nothing(
    given: dict[str, str], limits: set[str], ranks: StartRanks, tmp_path: Path
) -> None:
    job = ranks(**given)
    found = autobrrr(tmp_path, "diagnose", job.pid, "--json", "--for", "12s", timeout_s=200)
    assert found.code == 0, found.stderr
    assert found.json["limit"] in limits, found.json["limit_reason"]
    listed = found.json["ranks"]
    assert isinstance(listed, list)
    assert [each["rank"] for each in listed] == [0, 1]
    late = found.json["straggler"]
    assert isinstance(late, dict)
    working = [each for each in listed if each["limit"] != "communication"]
    if len(working) == 1 and working[0]["limit"] in ("host", "input", "sync", "kernels"):
        assert (late["rank"], late["why"]) == (working[0]["rank"], None)
        assert late["cause"] is not None
    else:
        assert (late["rank"], late["why"]) == (None, "on_device")  # not known, and said so
    nothing_stays(job, tmp_path)


@pytest.mark.nightly
def test_a_remedy_is_tried_on_the_devices_of_both_ranks_and_goes(ranks: StartRanks, tmp_path: Path) -> None:
    job = ranks(KERNELS="gemm=50")
    words = ("--only", "optimizer.fused", "--for", "14s", "--json")
    tuned = autobrrr(tmp_path, "tune", job.pid, *words, timeout_s=200)
    assert tuned.code == 0, tuned.stderr
    assert "tuning all 2 ranks" in tuned.stderr
    (trial,) = tuned.json["trials"]
    assert (trial["remedy"], trial["steps"] > 0) == ("optimizer.fused", True), trial["why"]
    left = autobrrr(tmp_path, "detach", job.pid)
    assert left.stderr.count("detached") == 2, left.stderr
    nothing_stays(job, tmp_path)
