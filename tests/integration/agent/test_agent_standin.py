"""The agent on every Python it may meet, where there is no wheel of torch: a stand-in for it."""

import shutil
from pathlib import Path

import pytest

from autobrrr.agent.wire import ring_layout
from support.agent.agent import AgentJob
from support.attach import RARE
from support.day_cases import by_day

pytestmark = pytest.mark.integration

PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.1[0-3].*/bin/python"))

SCRIPT = """
import os, sys, threading, time, torch
from torch.optim.optimizer import Optimizer
from support.agent import agent_job

class Plain(Optimizer):
    def _update(self):
        sum(range(500))

parameter = torch.Tensor(1.0)
optimizer = Plain([parameter])

def step():
    optimizer.zero_grad()
    torch.Tensor().backward()
    optimizer.step()

def state():
    return (
        [(k, id(v)) for k, v in vars(Optimizer).items()],
        [(k, id(v)) for k, v in vars(torch.autograd).items()],
        len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), threading.active_count(),
    )

before = state()
for _ in range(3):
    ended = agent_job.begin()
    while ended.locked(): step()
    agent_job.wait_ended(ended)
    assert state() == before, (state(), before)
print("as before on", sys.version_info[:2])
"""


@pytest.mark.skipif(not PYTHONS, reason="no other Python here")
@pytest.mark.parametrize(
    "python", by_day(PYTHONS, lambda path: ".".join(path.parts[-3].split(".")[:2]) not in RARE), ids=str
)
def test_steps_phases_remedies_and_a_clean_detach_on_this_python(tmp_path: Path, python: Path) -> None:
    assert shutil.which(str(python))
    with AgentJob(SCRIPT, tmp_path, python=str(python), standin=True) as job:
        for _ in range(3):
            peer = job.peer()
            steps = peer.wait_steps(60)
            assert [step.seq for step in steps] == list(range(len(steps)))
            sampled = [step.sampled for step in steps if step.flags & ring_layout.PHASES]
            assert sampled
            assert all(one["backward_ns"] > 0 and one["optimizer_ns"] > 0 for one in sampled)
            applied = peer.ask("apply", remedy="threads.intra_op", options={"threads": 2})
            assert applied["ok"], applied
            assert peer.ask("undo", token=applied["token"])["ok"]
            assert not peer.ask("apply", remedy="optimizer.fused")["ok"]
            assert peer.ask("trace")["ok"]
            assert peer.event("traced")["traced"]["status"] == "abstained"
            assert peer.ask("detach", keep=False)["left"] == []
            peer.close()
        assert "as before" in job.output()
