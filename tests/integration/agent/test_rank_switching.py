"""Remedies on real ranks: on at one step on all of them, or on none."""

from itertools import pairwise
from pathlib import Path

import pytest

from support.agent.agent import Peer
from support.agent.rank_agents import RankJobs, meet
from support.day_cases import by_day

pytestmark = pytest.mark.integration
FUSED = "optimizer.fused"
ALLOWED = ["bitwise", "rounding"]
# What can't go on is given up after half a second, not eight.
GIVES_UP_SOON = "from autobrrr.agent.ranks import rank_switching; rank_switching.MOST_TRIES = 3"


def changes(modes: list[int]) -> int:
    return sum(before != after for before, after in pairwise(modes))


EVALUATES = """
if RANK == 1 and len(modes) % 40 == 0:
    model.eval()
    with torch.no_grad():
        for _ in range(20):
            model.module(torch.zeros(16, 64))
    time.sleep(0.2)
    model.train()
"""


@pytest.mark.parametrize("by_file", by_day([False, True], lambda by_file: not by_file))
def test_a_remedy_goes_on_and_off_on_all_ranks_at_one_step(tmp_path: Path, *, by_file: bool) -> None:
    """Also where one rank comes late, and evaluates while the others wait."""
    with RankJobs(tmp_path, by_file=by_file, between=EVALUATES) as jobs:
        peers = jobs.peers()
        first = peers[0].ask("together", log="")
        assert first["ok"]
        assert not peers[0].ask("apply", remedy=FUSED, options={}, allowed=ALLOWED)["ok"]
        assert peers[1].ask("together", log=first["log"])["ok"]
        for _ in range(3):
            done = peers[0].ask("apply", remedy=FUSED, options={}, allowed=ALLOWED)
            assert done["ok"], done
            there = peers[1].event("together")["active"]
            assert [applied["remedy"] for applied in there] == [FUSED]  # type: ignore[attr-defined]
            undone = peers[0].ask("undo", token=done["token"])
            assert undone["ok"], undone
            assert peers[1].event("together")["active"] == []
        refused = peers[0].ask("apply", remedy=FUSED, options={}, allowed=["bitwise"])
        assert "its class is rounding" in str(refused["why"])
        token = switched_on(peers)
        again = peers[1].ask("apply", remedy=FUSED, options={}, allowed=["rounding"])
        assert "uses optimizer.implementation" in str(again["why"])
        assert peers[0].ask("undo", token=token)["ok"]
        for peer in peers:
            assert peer.ask("detach", keep=False)["left"] == []
        modes = jobs.end_alike()
    assert changes(modes) == 8


def switched_on(peers: list[Peer]) -> int:
    done = peers[0].ask("apply", remedy=FUSED, options={}, allowed=ALLOWED)
    assert done["ok"], done
    peers[1].event("together")
    token = done["token"]
    assert isinstance(token, int)
    return token


def test_where_one_rank_has_no_agent_nothing_goes_on(tmp_path: Path) -> None:
    with RankJobs(tmp_path, agents=1, between=GIVES_UP_SOON) as jobs:
        peers = meet(jobs.peers())
        done = peers[0].ask("apply", remedy=FUSED, options={}, allowed=ALLOWED)
        assert not done["ok"]
        assert "rank 1 did not answer" in str(done["why"])
        assert peers[0].ask("detach", keep=False)["left"] == []
        modes, weights = jobs.end()
    assert changes(modes[0]) == changes(modes[1]) == 0
    assert weights[0] == weights[1]


@pytest.mark.parametrize("gone", [0, 1])
def test_a_sidecar_that_dies_takes_it_off_on_all_ranks_at_one_step(tmp_path: Path, gone: int) -> None:
    with RankJobs(tmp_path) as jobs:
        peers = meet(jobs.peers())
        token = switched_on(peers)
        peers[gone].close()
        if gone == 1:
            lost = peers[0].event("remedy_lost")
            assert lost["token"] == token
        else:
            assert peers[1].event("together")["active"] == []
        assert peers[1 - gone].ask("detach", keep=False)["left"] == []
        modes = jobs.end_alike()
    assert changes(modes) == 2


@pytest.mark.parametrize("keep", [False, True])
def test_a_detach_of_one_rank_is_for_all(tmp_path: Path, *, keep: bool) -> None:
    with RankJobs(tmp_path) as jobs:
        peers = meet(jobs.peers())
        switched_on(peers)
        for peer in peers:
            assert peer.ask("detach", keep=keep)["left"] == []
        modes = jobs.end_alike()
    assert changes(modes) == (1 if keep else 2)


@pytest.mark.nightly  # the same at every moment: unit/agent/ranks/test_switch_protocol.py
def test_what_one_rank_can_not_revert_with_the_others_all_keep(tmp_path: Path) -> None:
    with RankJobs(tmp_path) as jobs:
        peers = meet(jobs.peers())
        switched_on(peers)
        assert peers[1].ask("detach", keep=True)["left"] == []
        left = peers[0].ask("detach", keep=False)
        assert (left["left"], left["stays"]) == ([], [FUSED])
        modes = jobs.end_alike()
    assert changes(modes) == 1


def test_a_rank_that_is_killed_leaves_no_other_waiting_for_us(tmp_path: Path) -> None:
    with RankJobs(tmp_path) as jobs:
        peers = meet(jobs.peers())
        switched_on(peers)
        jobs.jobs[1].process.kill()
        out, _ = jobs.jobs[0].process.communicate(timeout=120)
        assert "Connection" in out  # it is told by its own collective, and ends by itself
        assert jobs.jobs[0].process.returncode != 0


AGENT_FAILS = """
if RANK == 1 and sum(modes) == 5:
    from autobrrr.agent.ranks.switch_protocol import RankMember
    RankMember.offer = lambda member, count: 1 / 0
"""


@pytest.mark.nightly
def test_an_agent_that_fails_on_one_rank_leaves_all_with_the_same_remedies(tmp_path: Path) -> None:
    with RankJobs(tmp_path, between=AGENT_FAILS) as jobs:
        peers = meet(jobs.peers())
        token = switched_on(peers)
        peers[0].wait_steps(peers[0].steps()[-1].seq + 20)  # it is broken by then
        undone = peers[0].ask("undo", token=token)
        assert not undone["ok"], undone
        assert "ZeroDivisionError" in str(peers[1].event("removed")["why"])
        left = peers[0].ask("detach", keep=False)
        assert (left["left"], left["stays"]) == ([], [FUSED])
        modes = jobs.end_alike()
    assert changes(modes) == 1


UNEVEN = """
import hashlib, json, time, torch
from support.agent import agent_job
torch.set_num_threads(1); torch.manual_seed(0)
from torch import nn
import torch.distributed as dist
from torch.distributed.algorithms.join import Join

dist.init_process_group("gloo", init_method=WHERE, rank=RANK, world_size=2)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
steps, ended = 0, None
with Join([model]):
    while steps < 100 if RANK == 0 else not agent_job.told():
        exec(BETWEEN), time.sleep(0.01)
        optimizer.zero_grad()
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
        steps += 1
        if steps == 20:
            ended = agent_job.begin()
    if RANK == 0:
        print("no more data", flush=True)
bits = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
print("weights", hashlib.md5(bits).hexdigest(), flush=True)
agent_job.wait_ended(ended)
dist.destroy_process_group()
"""


def test_where_a_rank_has_no_more_data_nothing_goes_on_and_the_others_train_on(tmp_path: Path) -> None:
    with RankJobs(tmp_path, script=UNEVEN, between=GIVES_UP_SOON) as ranks:
        jobs = ranks.jobs
        peers = meet([job.peer() for job in jobs])
        jobs[0].until("no more data")
        done = peers[1].ask("apply", remedy=FUSED, options={}, allowed=ALLOWED)
        assert not done["ok"]
        peers[1].wait_steps(peers[1].steps()[-1].seq + 20)
        jobs[1].tell()
        for peer in peers:
            peer.ask("detach", keep=False)
        said = [job.output() for job in jobs]
    weights = [[line for line in each.splitlines() if line.startswith("weights")] for each in said]
    assert weights[0] == weights[1] != []
