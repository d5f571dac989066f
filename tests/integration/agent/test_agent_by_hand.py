"""The agent in a hand-written data parallel loop: its collectives are timed, its bits kept."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from support.agent.agent import AgentJob

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

JOB = """
import datetime, os, random, time, torch
from support.agent import agent_job
torch.set_num_threads(1); torch.manual_seed(0); random.seed(0)
from torch import nn
import torch.distributed as dist
from torch.distributed import all_reduce  # bound before anything is attached
from torch._C._distributed_c10d import ProcessGroup, Work

class Mine(Work):
    "An override that calls back into the bindings."

child = os.fork()
rank = 0 if child else 1
dist.init_process_group("gloo", init_method="file://" + STORE, rank=rank, world_size=2)
model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.2), nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(rank)
classes = [dict(vars(cls)) for cls in (ProcessGroup, Work)]

def step(number):
    optimizer.zero_grad()
    if rank == 1 or HOW == "none":
        time.sleep(LATE_S)
    model(torch.randn(16, 64)).square().mean().backward()
    gradients = [p.grad for p in model.parameters()]
    if HOW == "async":
        for work in [dist.all_reduce(each, async_op=True) for each in gradients]: work.wait()
    elif HOW == "mixed":
        dist.barrier()
        for each in gradients[1:]:
            parts = [torch.zeros_like(each) for _ in range(2)]
            dist.all_gather(parts, each)
            each.copy_(parts[0] + parts[1])
        all_reduce(gradients[0])
        dist.broadcast(gradients[0], 0)
        try:
            Mine().wait(datetime.timedelta(milliseconds=1))
        except RuntimeError:
            pass
    optimizer.step()

for number in range(20): step(number)
ended = agent_job.begin() if rank == 0 and ATTACHED else None
for number in range(20, STEPS): step(number)
if ended is not None:
    agent_job.wait_ended(ended)
assert classes == [dict(vars(cls)) for cls in (ProcessGroup, Work)]
if rank == 1:
    os._exit(0)
os.waitpid(child, 0)
print("fingerprint", agent_job.fingerprint(torch, model, optimizer), flush=True)
"""


def job(folder: Path, how: str, *, attached: bool = True, steps: int = 150, late_s: float = 0.01) -> AgentJob:
    given = {
        "HOW": how,
        "ATTACHED": attached,
        "STEPS": steps,
        "LATE_S": late_s,
        "STORE": str(folder / "store"),
    }
    return AgentJob("".join(f"{name} = {value!r}\n" for name, value in given.items()) + JOB, folder)


@pytest.mark.parametrize(("how", "calls"), [("async", 4), ("mixed", 6)])
def test_collectives_of_the_loop_are_timed_and_its_bits_kept(how: str, calls: int, tmp_path: Path) -> None:
    prints = []
    for attached in (True, False):
        folder = tmp_path / str(attached)
        folder.mkdir()
        with job(folder, how, attached=attached) as running:
            if attached:
                peer = running.peer()
                peer.wait_steps(10)
                assert peer.ask("collectives", steps=8)["ok"]
                waits = peer.event("collectives")["collectives"]
                assert isinstance(waits, dict)
                assert waits["status"] == "ok", waits
                assert peer.ask("collectives", steps=500)["ok"]
                peer.wait_steps(peer.steps()[-1].seq + 4)
                assert peer.ask("detach", keep=False)["left"] == []  # in the middle of it
                assert waits["calls"] == calls
                # The other rank sleeps 10 ms before its backward; whatever else happens, this one waits.
                assert median(waits["exposed_ns"]) > 5_000_000
                assert median(waits["blocked_ns"]) > 5_000_000
                assert waits["called_ns"] == waits["exposed_ns"]
                assert max(waits["called_by_phase_ns"], key=waits["called_by_phase_ns"].get) == "other"
            prints.append(running.output())
    assert prints[0] == prints[1]


def test_a_loop_that_calls_no_collective_is_told_so(tmp_path: Path) -> None:
    with job(tmp_path, "none") as running:
        peer = running.peer()
        peer.wait_steps(10)
        assert peer.ask("collectives", steps=6)["ok"]
        waits = peer.event("collectives")["collectives"]
        assert isinstance(waits, dict)
        assert waits["status"] == "abstained"
        assert "called no collective" in str(waits["why"])
        assert peer.ask("detach", keep=False)["left"] == []
        running.output()
