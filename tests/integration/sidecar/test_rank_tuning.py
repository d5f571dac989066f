"""`tune` on the launcher of two real ranks: each remedy is tried on both, and the weights stay equal."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.torchrun import Torchrun
from support.training import autobrrr, environment, sidecars

# By day: test_rank_switching.py.
pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.timeout(600)]
WORDS = ("--for", "12s", "--only", "optimizer.fused", "--json")


class RankPair(Torchrun):
    """Two ranks of `jobs/together.py`, which end at one step."""

    def __init__(self, folder: Path) -> None:
        self.stop = folder / "stop"
        super().__init__(folder, "--until", str(self.stop), script="together")
        self.wait_until_it_trains()

    def weights(self) -> list[str]:
        """Of both ranks, once they have ended."""
        self.stop.touch()
        assert self.process.wait(120) == 0, self.lines
        self._reader.join(30)
        return re.findall(r"rank \d (\w{32})", "".join(self.lines))  # a warning may stand in the same line


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[RankPair]:
    started = RankPair(tmp_path)
    yield started
    started.kill()


def test_a_remedy_of_class_rounding_is_compared_on_all_ranks(pair: RankPair, tmp_path: Path) -> None:
    found = autobrrr(tmp_path, "tune", pair.pid, *WORDS)
    assert found.code == 0, found.stderr
    trial = found.json["trials"][0]  # type: ignore[index]
    assert trial["class"] == "rounding", found.stderr
    assert trial["blocks"] >= 2
    assert "tuning all 2 ranks" in found.stderr
    left = autobrrr(tmp_path, "detach", pair.pid)
    assert (left.code == 0) == bool(found.json["kept"]), left.stderr  # type: ignore[index]
    first, second = pair.weights()
    assert first == second


def test_a_sidecar_that_is_killed_while_ranks_are_tuned_splits_no_weights(
    pair: RankPair, tmp_path: Path
) -> None:
    ranks = autobrrr(tmp_path, "diagnose", pair.pid, "--no-probe", "--for", "3s", "--json").json["ranks"]
    tuning = subprocess.Popen(
        [sys.executable, "-m", "autobrrr", "tune", pair.pid, *WORDS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    for line in tuning.stderr:
        if "trying" in line:
            break
    (victim,) = sidecars(tmp_path, of=int(ranks[1]["pid"]))  # type: ignore[index]
    os.kill(victim, signal.SIGKILL)
    tuning.communicate(timeout=120)
    for pid in (each["pid"] for each in ranks):  # type: ignore[attr-defined]
        autobrrr(tmp_path, "detach", str(pid))
    first, second = pair.weights()
    assert first == second
