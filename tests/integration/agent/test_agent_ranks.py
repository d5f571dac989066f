"""The agent in one of two real ranks: it times what the other makes it wait, and puts all back."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from support.agent.agent import AgentJob

pytestmark = pytest.mark.integration

JOB = """
import os, signal, sys, time, torch
from support.agent import agent_job
torch.set_num_threads(1); torch.manual_seed(0)
from torch import nn
import torch.distributed as dist

rates = []
Parallel = nn.parallel.DistributedDataParallel
set_rate = Parallel._set_ddp_runtime_logging_sample_rate

def spy(self, rate):
    rates.append(rate)
    set_rate(self, rate)

Parallel._set_ddp_runtime_logging_sample_rate = spy
child = os.fork()
rank = 0 if child else 1
dist.init_process_group("gloo", init_method="file://" + STORE, rank=rank, world_size=2)
inner = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
model = nn.parallel.DistributedDataParallel(inner) if WRAPPED else inner
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(16, 64)
over = torch.zeros(1)

def step():
    optimizer.zero_grad()
    if rank == 1:
        time.sleep(LATE_S)  # the slow one
    model(x).square().mean().backward()
    optimizer.step()
    if rank == 0:
        over.fill_(float(ended is not None and not ended.locked()))
    dist.all_reduce(over)
    return float(over) == 0

ended = None
for _ in range(20): step()
if rank == 0:
    ended = agent_job.begin()
while step(): pass
if rank == 1:
    os._exit(0)
agent_job.wait_ended(ended)
os.waitpid(child, 0)
print("rates", rates, flush=True)
"""


def job(folder: Path, *, wrapped: bool = True, late_s: float = 0.03) -> AgentJob:
    head = f"STORE, WRAPPED, LATE_S = {str(folder / 'store')!r}, {wrapped}, {late_s}\n"
    return AgentJob(head + JOB, folder)


def test_the_wait_for_a_slow_rank_is_told_by_two_clocks(tmp_path: Path) -> None:
    with job(tmp_path) as running:
        peer = running.peer()
        peer.wait_steps(30)
        assert peer.ask("collectives", steps=6)["ok"]
        waits = peer.event("collectives")["collectives"]
        assert isinstance(waits, dict)
        assert waits["status"] == "ok", waits
        steps, exposed, blocked = (waits[name] for name in ("step_ns", "exposed_ns", "blocked_ns"))
        assert len(steps) == len(exposed) == len(blocked) >= 6
        assert waits["calls"] == 1  # the loop's own, beside the gradients
        assert median(waits["called_ns"]) < median(exposed)
        # The other rank sleeps 30 ms before its backward; whatever else the machine does, this one waits.
        assert median(exposed) > 15_000_000
        assert median(blocked) > 15_000_000
        assert all(0 <= one <= step for one, step in zip(exposed, steps, strict=True))
        assert set(waits["reduced"]) == {1}  # the backward of each step
        own = waits["own_by_phase_ns"]
        assert {"forward", "backward", "optimizer", "other"} <= set(own)
        assert {len(column) for column in (*own.values(), waits["end_ns"], waits["delay_ns"])} == {len(steps)}
        assert median(own["backward"]) < median(exposed)  # what it waits for is no work of its own
        assert all(
            sum(each) <= step for each, step in zip(zip(*own.values(), strict=True), steps, strict=True)
        )
        assert peer.ask("collectives", steps=500)["ok"]
        peer.wait_steps(peer.steps()[-1].seq + 4)
        assert peer.ask("detach", keep=False)["left"] == []  # in the middle of it
        assert "rates [1, 100, 1, 100]" in running.output()
