"""Ranks that come late, evaluate while others wait, or have no more data: a remedy is on on all or none."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from support.agent.agent import AgentJob
from support.agent.rank_agents import RankJobs, meet

pytestmark = pytest.mark.integration
FUSED = "optimizer.fused"
ALLOWED = ["bitwise", "rounding"]
EVALUATES = """
if RANK == 1 and len(modes) % 40 == 0:
    model.eval()
    with torch.no_grad():
        for _ in range(20):
            model.module(torch.zeros(16, 64))
    time.sleep(0.5)
    model.train()
"""
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
        time.sleep(0.01)
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


def test_a_rank_that_comes_late_is_switched_with_the_others_from_then_on(tmp_path: Path) -> None:
    with RankJobs(tmp_path) as jobs:
        peers = jobs.peers()
        first = peers[0].ask("together", log="")
        assert first["ok"]
        early = peers[0].ask("apply", remedy=FUSED, options={}, allowed=ALLOWED)
        assert not early["ok"]
        assert peers[1].ask("together", log=first["log"])["ok"]
        done = peers[0].ask("apply", remedy=FUSED, options={}, allowed=ALLOWED)
        assert done["ok"], done
        assert peers[0].ask("undo", token=done["token"])["ok"]
        for peer in peers:
            assert peer.ask("detach", keep=False)["left"] == []
        modes = jobs.end_alike()
    assert 1 in modes


def test_a_rank_that_evaluates_is_waited_for_by_nobody_but_its_own_ranks(tmp_path: Path) -> None:
    with RankJobs(tmp_path, between=EVALUATES) as jobs:
        peers = meet(jobs.peers())
        for _ in range(3):
            done = peers[0].ask("apply", remedy=FUSED, options={}, allowed=ALLOWED)
            assert done["ok"], done
            assert peers[0].ask("undo", token=done["token"])["ok"]
        for peer in peers:
            assert peer.ask("detach", keep=False)["left"] == []
        modes = jobs.end_alike()
    assert 1 in modes


def test_where_a_rank_has_no_more_data_nothing_goes_on_and_the_others_train_on(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    jobs = []
    for rank in range(2):
        own = tmp_path / str(rank)
        own.mkdir()
        jobs.append(AgentJob(f"WHERE, RANK = {json.dumps(where)}, {rank}\n{UNEVEN}", own))
    with jobs[0], jobs[1]:
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
