"""A step is recorded in a real job, which is as it was; the job's own Python replays it."""

import os
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest

from autobrrr.machine.procfs import descendants
from autobrrr.sidecar.process.step_replayer import StepReplay, StepReplayer
from support.agent.agent import AgentJob
from support.agent.agent_windows import next_with_file
from support.attach import eventually

pytestmark = pytest.mark.integration

JOB = """
import torch
from torch import nn
from support.agent import agent_job
from support.agent.visible import differing, visible_state
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(), nn.BatchNorm1d(256), nn.Linear(256, 8))
optimizer = torch.optim.AdamW(model.parameters())

def step():
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()

for _ in range(20): step()
before = visible_state(model, optimizer)
ended = agent_job.begin()
while ended.locked(): step()
for _ in range(3): step()
agent_job.wait_ended(ended)
assert not (other := differing(before, visible_state(model, optimizer))), other
assert not torch.autograd._profiler_enabled()
print("as before")
"""


def test_a_recorded_step_is_replayed_and_the_job_is_as_before(tmp_path: Path) -> None:
    with AgentJob(JOB, tmp_path) as job:
        found: SimpleQueue[StepReplay] = SimpleQueue()
        peer = job.peer()
        peer.wait_steps(20)
        replayer = StepReplayer(job.process.pid, lambda call: call())
        replayer.expect(True)
        assert peer.ask("trace")["ok"]
        replayer(*next_with_file(peer, "recorded"), found.put)
        early, replay = found.get(timeout=60), found.get(timeout=60)
        assert early.more
        assert [row.op for row in early.work] == [row.op for row in replay.work]
        assert {row.alone_ns for row in early.work} == {None}
        assert (probe := replay.probe) is not None
        (dearest,) = [row for row in replay.work if row.op == "aten.addmm.default" and "64x256" in row.shapes]
        assert (dearest.phase, dearest.flops) == ("forward", 2 * 32 * 64 * 256)
        assert dearest.kernel_ns > 0
        assert (dearest.alone_ns or 0) > 0
        assert (probe.status, probe.batch) == ("ok", 32), probe.why
        assert [point.batch for point in probe.points] == [16, 32, 64]
        before = descendants(os.getpid())
        replayer.expect(True)
        replayer({"status": "abstained", "why": "none came"}, None, found.put)  # its process ends
        assert "why='none came'" in str(found.get(timeout=60).probe)
        eventually(lambda: descendants(os.getpid()) == before)
        assert peer.ask("detach", keep=False)["left"] == []
        assert job.output().split("\n") == ["as before", ""]  # nor does torch tell of its observer


OBSERVED = """
import os, threading, time, torch
from autobrrr.agent.measure import step_recorder
torch.set_num_threads(1)
step_recorder.LEAVE_S = 0.1
inside, x, over = torch._C._profiler, torch.ones(4), threading.Event()

def works():
    while not over.is_set(): x + 1

threads = [threading.Thread(target=works) for _ in range(4)]
for each in threads: each.start()
for _ in range(40):  # of removals at once, every twentieth has ended the process
    record = os.memfd_create("record")
    assert inside._add_execution_trace_observer(f"/proc/self/fd/{record}")
    inside._enable_execution_trace_observer()
    time.sleep(0.02)
    inside._disable_execution_trace_observer()
    step_recorder._OFF_S.append(time.monotonic())
    step_recorder.remove_observer(torch)
    assert os.pread(record, 1 << 20, max(0, os.fstat(record).st_size - 99)).rstrip().endswith(b"}")
    os.close(record)
over.set()
"""


def test_threads_whose_operators_are_recorded_outlive_the_observer() -> None:
    subprocess.run([sys.executable, "-c", OBSERVED], check=True, timeout=120)
