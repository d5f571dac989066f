"""Ranks on two emulated machines: a late one is named by both, and nothing stays in the job's store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.attach import eventually
from support.outside.emulated_hosts import EmulatedHosts, HostsTorchrun, NoHosts, kept_keys

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
QUICK = ("--no-probe", "--for", "20s", "--json")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[EmulatedHosts]:
    try:
        made = EmulatedHosts(tmp_path)
    except NoHosts as why:
        pytest.skip(f"no machines can be emulated here: {why}")
    yield made
    made.end()


@pytest.fixture
def late(hosts: EmulatedHosts, tmp_path: Path) -> Iterator[HostsTorchrun]:
    """Two ranks on each machine; rank 3 works 40 ms longer in each step."""
    words = ("--until", str(tmp_path / "never"))
    started = HostsTorchrun(hosts.hosts, "parallel", *words, LATE_RANK="3", LATE_MS="40", EACH_MS="10")
    try:
        started.wait_until_it_trains()
        yield started
    finally:
        hosts.end()
        started.end()


def test_a_late_rank_is_named_by_both_machines(hosts: EmulatedHosts, late: HostsTorchrun) -> None:
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(
            lambda host, pid: host.autobrrr("diagnose", pid, *QUICK), hosts.hosts, late.pids
        )
    for found, machine in ((one, "node-b"), (other, None)):
        assert found.code == 0, found.stderr
        straggler = found.json["straggler"]
        assert isinstance(straggler, dict), found.stderr
        assert (straggler["rank"], straggler["machine"]) == (3, machine), found.stderr
        assert (straggler["compared"], straggler["world_size"]) == (4, 4)
        ranks = found.json["ranks"]
        assert isinstance(ranks, list)
        assert [line["rank"] for line in ranks] == [0, 1, 2, 3]
        assert [line["slowest"] for line in ranks] == [False, False, False, True]
    assert one.json["straggler"]["pid"] is None  # type: ignore[index]
    eventually(lambda: kept_keys(hosts, late) == [], 60)


def test_a_session_that_is_watched_is_compared_when_another_machine_comes(
    hosts: EmulatedHosts, late: HostsTorchrun
) -> None:
    first = hosts.hosts[0].start("attach", late.pids[0], "--no-probe", "--json")
    seen: list[dict[str, object]] = []
    reader = threading.Thread(target=follow, args=(first, seen), daemon=True)
    reader.start()
    try:
        eventually(lambda: last_compared(seen) == 2, 120)
        other = hosts.hosts[1].autobrrr("diagnose", late.pids[1], *QUICK)
        assert other.json["straggler"]["compared"] == 4, other.stderr  # type: ignore[index]
        eventually(lambda: last_compared(seen) == 4, 60)
        straggler = seen[-1]
        assert (straggler["rank"], straggler["machine"]) == (3, "node-b")
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(30)
        reader.join(30)
    assert hosts.hosts[0].autobrrr("detach", late.pids[0]).code == 0
    eventually(lambda: kept_keys(hosts, late) == [], 60)
    for host in hosts.hosts:
        eventually(lambda host=host: not any("autobrrr" in words for words in host.processes()), 60)  # type: ignore[misc]


def follow(process: subprocess.Popen[str], seen: list[dict[str, object]]) -> None:
    """Every comparison that it shows."""
    assert process.stdout is not None
    for line in process.stdout:
        straggler = json.loads(line)["straggler"] if line.startswith("{") else None
        if straggler is not None:
            seen.append(straggler)


def last_compared(seen: list[dict[str, object]]) -> object:
    """How many ranks were compared last."""
    return seen[-1]["compared"] if seen else None
