"""A session that compiles a running job: hooks keep clear of it, troubles undo it, nothing of it stays."""

from pathlib import Path

import pytest

from autobrrr.agent.wire import framing
from support.agent.agent import AgentJob

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

JOB = """
import sys, torch, torch._inductor.compile_fx
from support.agent import agent_job
from support.agent.visible import differing, visible_state
torch._inductor.compile_fx.compile_fx = lambda graph, *_, **options: graph  # no C++ compiler starts
torch.set_num_threads(1); torch.manual_seed(0)
from torch import nn
from torch.nn.functional import relu

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(16, 32), nn.Dropout(0.1), nn.Linear(32, 4)
        self.seen = [0]
    def forward(self, x):
        SEEN
        return self.last(self.drop(relu(self.first(x))))

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

def step():
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()

for _ in range(20):
    step()
before = visible_state(model, optimizer)
ended = agent_job.begin()
steps = 20
while ended.locked():
    step()
    steps += 1
agent_job.wait_ended(ended)
assert not (other := differing(before, visible_state(model, optimizer))), other
torch.manual_seed(0)
weights, seen = [each.detach().clone() for each in model.parameters()], model.seen
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(steps):
    step()
off = max(float((a - b).abs().max()) for a, b in zip(weights, model.parameters()))
graphs = sys.modules["torch._dynamo.utils"].counters["stats"]["unique_graphs"]
print("off", off, "seen", seen == model.seen, "graphs", graphs)
"""


def test_a_job_is_compiled_switched_and_left_as_it_was(tmp_path: Path) -> None:
    with AgentJob(JOB.replace("SEEN", "pass"), tmp_path) as running:
        peer = running.peer()
        peer.wait_steps(100)
        on = peer.ask("apply", remedy="compile.default", options={})
        assert on["ok"], on
        assert on["class"] == "rounding"
        peer.wait_steps(on["seq"] + 100, timeout_s=200)
        assert peer.ask("trace")["ok"]
        assert "compiled" in peer.event("traced")["traced"]["why"]
        assert peer.ask("undo", token=on["token"])["ok"]
        again = peer.ask("apply", remedy="compile.default", options={})
        peer.wait_steps(again["seq"] + 50)
        assert peer.ask("detach", keep=False)["left"] == []
        peer.close()
        said = running.output().split()
        assert float(said[said.index("off") + 1]) < 1e-4
        assert said[-1] == "0"  # ours are forgotten: the job counts as one that compiles nothing


def test_code_that_is_compiled_again_each_step_is_reverted_and_ran_once_a_step(tmp_path: Path) -> None:
    with AgentJob(JOB.replace("SEEN", "self.seen.append(0)"), tmp_path) as running:
        peer = running.peer()
        peer.wait_steps(100)
        on = peer.ask("apply", remedy="compile.default", options={})
        assert on["ok"], on
        lost = peer.event("remedy_lost")
        assert lost["token"] == on["token"]
        assert "torch compiled it again" in lost["why"]
        assert not peer.ask("undo", token=on["token"])["ok"]
        assert peer.ask("detach", keep=False)["left"] == []
        peer.close()
        said = running.output().split()
        assert float(said[said.index("off") + 1]) < 1e-4
        assert said[said.index("seen") + 1] == "True"


COMPILES_FOR_LONG = """
import time, torch
from support.agent import agent_job
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

def step(call):
    optimizer.zero_grad()
    call(torch.ones(8, 16)).square().mean().backward()
    optimizer.step()

def backend(graph, inputs):
    print("compiling", flush=True)
    while not agent_job.told(): time.sleep(0.01)
    return graph.forward

ended = agent_job.begin()
while not agent_job.told(): step(model)
compiled = torch.compile(lambda x: model(x), backend=backend)
while ended.locked(): step(compiled)
agent_job.wait_ended(ended)
"""


def test_a_detach_that_waits_says_that_the_job_compiles_and_ends_with_the_step(tmp_path: Path) -> None:
    with AgentJob(COMPILES_FOR_LONG, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(10)
        assert peer.ask("apply", remedy="optimizer.foreach")["ok"]
        job.tell()
        job.until("compiling")
        framing.send(peer.link, {"do": "detach", "id": 99, "keep": False})
        assert peer.event("awaits")["why"] == "the job compiles (torch.compile)"
        job.tell()
        while (reply := peer.receive()).get("reply") != 99:
            pass
        assert reply["left"] == []
        job.output()
