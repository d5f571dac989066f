"""`tune` over two emulated machines: one leads, the ranks of the other follow, and the weights stay equal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.attach import eventually
from support.outside.emulated_hosts import EmulatedHost, EmulatedHosts, HostsTorchrun, NoHosts, kept_keys

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
ONLY = ("--for", "20s", "--only", "optimizer.fused", "--json")


class FarPair:
    """A job of one rank on each machine, which end at one step."""

    def __init__(self, folder: Path) -> None:
        self.hosts = EmulatedHosts(folder)
        self._stop = folder / "stop"
        words = ("--until", str(self._stop))
        self.job = HostsTorchrun(self.hosts.hosts, "together", *words, ranks=1)
        self.job.wait_until_it_trains()

    @property
    def both(self) -> list[tuple[EmulatedHost, str]]:
        """Each machine with its launcher."""
        return list(zip(self.hosts.hosts, self.job.pids, strict=True))

    def weights(self) -> list[str]:
        """Of both ranks, once they have ended."""
        self._stop.touch()
        return re.findall(r"rank \d (\w{32})", "".join(self.job.wait_until_it_ends()))

    def detach(self) -> None:
        """On both, and nothing of ours is left: no process, and no key in the job's store."""
        for host, pid in self.both:
            left = host.autobrrr("detach", pid)
            assert left.code == 0, left.stderr
        eventually(lambda: kept_keys(self.hosts, self.job) == [], 60)
        for host, _ in self.both:
            eventually(lambda host=host: not any("autobrrr" in words for words in host.processes()), 60)  # type: ignore[misc]

    def end(self) -> None:
        self.hosts.end()
        self.job.end()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[FarPair]:
    try:
        made = FarPair(tmp_path)
    except NoHosts as why:
        pytest.skip(f"no machines can be emulated here: {why}")
    yield made
    made.end()


def trial_of(found: dict[str, object], errors: str) -> dict[str, object]:
    trials = found["trials"]
    assert isinstance(trials, list), errors
    assert trials, errors
    return trials[0]


def test_of_two_machines_that_tune_one_leads_and_the_other_follows(pair: FarPair) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda each: each[0].autobrrr("tune", each[1], *ONLY), pair.both))
    told = [(each.code, each.stderr) for each in found]
    assert [each.code for each in found] == [0, 0], told
    leads = ["tuning all 2 ranks, 1 of them on other machines" in each.stderr for each in found]
    assert sorted(leads) == [False, True], told
    lead, follower = found[leads.index(True)], found[leads.index(False)]
    trial = trial_of(lead.json, lead.stderr)
    assert trial["class"] == "rounding", told
    assert int(str(trial["blocks"])) >= 2, told
    assert re.search(r"node-[ab] tunes this job; the ranks of this machine follow it", follower.stderr), told
    assert follower.json["kept"] == lead.json["kept"], told
    pair.detach()
    first, second = pair.weights()
    assert first == second


def attached(host: EmulatedHost, pid: str) -> subprocess.Popen[str]:
    """An attach that goes on watching."""
    started = host.start("attach", pid, "--no-probe", "--json")
    assert started.stdout is not None
    for line in started.stdout:
        if line.startswith("{"):
            break
    return started


def end(watching: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(watching.pid, signal.SIGKILL)
    watching.wait(30)


def test_ranks_of_a_machine_that_only_watches_follow(pair: FarPair) -> None:
    (one, first), (other, second) = pair.both
    watching = attached(other, second)
    try:
        found = one.autobrrr("tune", first, *ONLY)
        assert found.code == 0, found.stderr
        assert int(str(trial_of(found.json, found.stderr)["blocks"])) >= 2, found.stderr
    finally:
        end(watching)
    pair.detach()
    assert len(set(pair.weights())) == 1


def test_where_a_machine_is_not_attached_nothing_is_switched(pair: FarPair) -> None:
    one, pid = pair.both[0]
    found = one.autobrrr("tune", pid, "--for", "20s", "--only", "optimizer.fused")
    assert found.code == 1
    assert "rank 1 does not follow" in found.stderr
    assert one.autobrrr("ls").code == 0
    assert kept_keys(pair.hosts, pair.job) == []
    assert len(set(pair.weights())) == 1


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_a_machine_that_leads_and_is_gone_splits_no_weights(pair: FarPair, how: signal.Signals) -> None:
    """Its session for good, or for a while the launcher, which keeps the job's store."""
    (one, first), (other, second) = pair.both
    watching = attached(other, second)
    leading = one.start("tune", first, *ONLY)
    assert leading.stdout is not None
    try:
        for line in leading.stdout:
            if "trying" in line:
                break
        if how == signal.SIGSTOP:
            pair.job.stop_launcher(0, 2.0)
        else:
            for number in sidecars(one):
                os.kill(number, signal.SIGKILL)
        leading.communicate(timeout=120)
    finally:
        end(watching)
        end(leading)
    for host, pid in pair.both:
        host.autobrrr("detach", pid)
    assert len(set(pair.weights())) == 1


def sidecars(host: EmulatedHost) -> list[int]:
    return [number for number, _, words in host.numbered() if "autobrrr.sidecar" in words]
