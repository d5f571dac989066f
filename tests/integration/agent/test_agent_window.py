"""A profiler window in a real job: it comes whole, gives way to the job's own profiler, leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autobrrr.sidecar.session.window_reader import read_window
from support.agent.agent import AgentJob
from support.agent.agent_windows import next_window

pytestmark = pytest.mark.integration

BARE = """
import os, sys, time, torch
from support.agent import agent_job
torch.set_num_threads(1)
from torch import nn
from torch.autograd import profiler

def made():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(), nn.BatchNorm1d(256), nn.Linear(256, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer

def stepper(model, optimizer):
    def step():
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
    return step

model, optimizer = made()
step = stepper(model, optimizer)
for _ in range(20): step()
before = agent_job.snapshot(torch, model, optimizer)
"""
BEGIN = "ended = agent_job.begin()\n"
JOB = BARE + BEGIN

END = """
while ended.locked():
    step()
for _ in range(3): step()
agent_job.wait_ended(ended)
now = agent_job.snapshot(torch, model, optimizer)
assert now["threads"] - before["threads"] in (0, 1)  # torch's profiler keeps one of its own
before["threads"] = now["threads"]
for name in before:
    assert before[name] == now[name], (name, before[name], now[name])
assert not torch.autograd._profiler_enabled()
assert not profiler._is_profiler_enabled
print("as before")
"""


def test_a_window_comes_with_its_trace_and_leaves_nothing(tmp_path: Path) -> None:
    with AgentJob(JOB + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(20)
        assert peer.ask("window", steps=3)["ok"]
        told, fd = next_window(peer)
        window = read_window(told, fd)
        assert window.status == "ok"
        assert len(window.profiled_step_ns) == 3
        assert len(window.plain_step_ns) == 3
        assert window.stall_ns is not None
        assert window.stall_ns > 0
        names = {each.op for each in window.by_op}
        assert {"aten::addmm", "aten::native_batch_norm"} <= names
        addmm = next(each for each in window.by_op if each.op == "aten::addmm")
        assert addmm.count == pytest.approx(2)
        assert 0 < (window.inside_share or 0) < 1
        assert peer.ask("window", steps=3)["ok"]  # once more in the same session
        again = read_window(*next_window(peer))
        assert again.status == "ok"
        assert peer.ask("detach", keep=False)["left"] == []
        assert job.output().split("\n") == ["as before", ""]  # nor does the profiler tell what it does


MANY = """
class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
    def forward(self, x):
        for _ in range(700): x = x + 1
        return self.inner(x).sum()
model = Chain(); optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
before = agent_job.snapshot(torch, model, optimizer)
def step():
    optimizer.zero_grad()
    model(torch.randn(4, 8, requires_grad=True)).backward()
    optimizer.step()
ended = agent_job.begin()
"""


def test_steps_of_many_operators_are_profiled_in_fewer(tmp_path: Path) -> None:
    with AgentJob(BARE + MANY + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(4)
        assert peer.ask("window", steps=4)["ok"]
        window = read_window(*next_window(peer))
        assert (window.status, len(window.profiled_step_ns)) == ("ok", 1)
        peer.ask("detach", keep=False)
        assert "as before" in job.output()


FUSED = """
model, _ = made()
def fuse(parameter):
    optimizer = torch.optim.AdamW([parameter])
    def update(_):
        optimizer.step()
        optimizer.zero_grad()
    parameter.register_post_accumulate_grad_hook(update)
    return optimizer
optimizer = [fuse(each) for each in model.parameters()][0]
def step():
    model(torch.randn(32, 64)).square().mean().backward()
for _ in range(20): step()
before = agent_job.snapshot(torch, model, optimizer)
"""


def test_a_window_opens_and_shuts_between_steps_whose_updates_run_in_their_backward(tmp_path: Path) -> None:
    with AgentJob(BARE + FUSED + BEGIN + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(20)
        assert peer.ask("window", steps=3)["ok"]
        window = read_window(*next_window(peer))
        assert (window.status, len(window.profiled_step_ns)) == ("ok", 3)
        updates = [each.count for each in window.by_op if each.op.startswith("Optimizer.step")]
        assert updates == [pytest.approx(6)] or not updates  # of a step: one for each parameter
        assert peer.ask("detach", keep=False)["left"] == []
        assert "as before" in job.output()


BITWISE = """
def trained(watched):
    global ended
    model, optimizer = made()
    step = stepper(model, optimizer)
    if watched: ended = agent_job.begin()
    for _ in range(400):
        step()
        if watched: time.sleep(0.003)
    return agent_job.fingerprint(torch, model, optimizer)
digests = [trained(False), trained(False), trained(True)]
assert len(set(digests)) == 1, digests
"""


def test_training_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    with AgentJob(BARE + BITWISE + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(20)
        for _ in range(2):
            assert peer.ask("window", steps=3)["ok"]
            assert read_window(*next_window(peer)).status == "ok"
            peer.events.clear()
        peer.ask("detach", keep=False)
        assert "as before" in job.output()


OWN_PROFILER = """
def own(**options):
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)
"""
SCHEDULED = """
with own(schedule=torch.profiler.schedule(wait=1000, warmup=1, active=1)) as prof:
    while ended.locked() and not agent_job.told():
        step()
        prof.step()
"""
BEGINS_MEANWHILE = """
while not torch.autograd._profiler_enabled():
    step()
step()
with own() as prof:
    for _ in range(3): step()
counted = sum(each.count for each in prof.key_averages() if each.key == "aten::addmm")
assert counted == 6, counted
print("its own profile is whole")
"""


def test_a_job_with_a_profiler_schedule_is_not_profiled(tmp_path: Path) -> None:
    with AgentJob(JOB + OWN_PROFILER + SCHEDULED + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(20)
        assert peer.ask("window", steps=3)["ok"]
        told, fd = next_window(peer)
        assert (told.status, fd) == ("abstained", None)
        assert "profiled already" in (told.why or "")
        job.tell()
        peer.ask("detach", keep=False)
        assert "as before" in job.output()


def test_it_gives_way_to_a_profiler_that_the_job_starts_meanwhile(tmp_path: Path) -> None:
    with AgentJob(JOB + OWN_PROFILER + BEGINS_MEANWHILE + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(4)
        assert peer.ask("window", steps=12)["ok"]
        told, _ = next_window(peer)
        assert told.status == "abstained"
        assert "a profiler of its own" in (told.why or "")
        peer.ask("detach", keep=False)
        output = job.output()
        assert "its own profile is whole" in output
        assert "as before" in output


FORKS = """
while not torch.autograd._profiler_enabled():
    step()
pid = os.fork()
if pid == 0:
    os._exit(7 if torch.autograd._profiler_enabled() else 0)
assert os.waitpid(pid, 0)[1] == 0, "the child goes on recording"
print("forked")
"""


def test_a_child_that_is_forked_meanwhile_is_not_profiled(tmp_path: Path) -> None:
    with AgentJob(JOB + FORKS + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(4)
        assert peer.ask("window", steps=12)["ok"]
        told, _ = next_window(peer)
        assert "started a process" in (told.why or "")
        peer.ask("detach", keep=False)
        output = job.output()
        assert "forked" in output
        assert "as before" in output


STANDS_STILL = """
while not torch.autograd._profiler_enabled():
    step()
print("profiled", flush=True)
while ended.locked():
    time.sleep(0.01)
step()
step()
"""


@pytest.mark.parametrize("goodbye", ["detach", "link lost"])
def test_a_session_that_ends_while_training_stands_still_leaves_no_profiler_on(
    goodbye: str, tmp_path: Path
) -> None:
    with AgentJob(JOB + STANDS_STILL + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(4)
        assert peer.ask("window", steps=12)["ok"]
        job.until("profiled")
        if goodbye == "detach":
            assert peer.ask("detach", keep=False)["left"] == ["profiler window (undone at the next step)"]
        peer.close()
        assert "as before" in job.output()


def test_a_read_only_session_opens_no_window(tmp_path: Path) -> None:
    readonly = JOB.replace("agent_job.begin()", "agent_job.begin(readonly=True)")
    with AgentJob(readonly + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(4)
        assert "read-only" in str(peer.ask("window")["why"])
        peer.ask("detach", keep=False)
        assert "as before" in job.output()
    assert not [name for name in os.listdir("/tmp") if name.startswith("autobrrr-window-")]
