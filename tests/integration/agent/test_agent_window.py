"""A profiler window in a real job: it comes whole, gives way to the job's own profiler, leaves nothing."""

from collections.abc import Iterator

import pytest

from autobrrr.sidecar.session.window_reader import read_window
from support.agent.agent import SERVES, AgentJob
from support.agent.agent_windows import next_window

pytestmark = pytest.mark.integration

JOB = """
import os, time, torch
from support.agent import agent_job
from support.agent.visible import differing, visible_state
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

def own(**options):
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)

def begin():
    global before, ended
    for _ in range(20): step()
    before = visible_state(model, optimizer)
    ended = agent_job.begin()

def end():
    while ended.locked(): step()
    for _ in range(3): step()
    agent_job.wait_ended(ended)
    now = visible_state(model, optimizer)
    assert now["threads"] - before["threads"] in (0, 1)  # torch's profiler keeps one of its own
    assert not (other := differing({**before, "threads": now["threads"]}, now)), other
    assert not torch.autograd._profiler_enabled()
    assert not profiler._is_profiler_enabled

model, optimizer = plain = made()
step = plain_step = stepper(model, optimizer)
"""
AGAIN = "\nmodel, optimizer = plain; step = plain_step\n"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentJob]:
    with AgentJob(JOB + SERVES, tmp_path_factory.mktemp("window")) as running:
        yield running


def test_windows_come_with_their_traces_and_leave_nothing(job: AgentJob) -> None:
    with job.session("begin(); end()") as peer:
        for _ in range(2):
            assert peer.ask("window", steps=3)["ok"]
            window = read_window(*next_window(peer))
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
            peer.events.clear()
        assert peer.ask("detach", keep=False)["left"] == []
    assert job.said == ""  # nor does the profiler tell what it does


MANY = """
class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
    def forward(self, x):
        for _ in range(700): x = x + 1
        return self.inner(x).sum()
model = Chain(); optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def step():
    optimizer.zero_grad()
    model(torch.randn(4, 8, requires_grad=True)).backward()
    optimizer.step()
begin(); end()
"""


def test_steps_of_many_operators_are_profiled_in_fewer(job: AgentJob) -> None:
    with job.session(MANY + AGAIN) as peer:
        peer.wait_steps(4)
        assert peer.ask("window", steps=4)["ok"]
        window = read_window(*next_window(peer))
        assert (window.status, len(window.profiled_step_ns)) == ("ok", 1)


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
begin(); end()
"""


def test_a_window_opens_and_shuts_between_steps_whose_updates_run_in_their_backward(job: AgentJob) -> None:
    with job.session(FUSED + AGAIN) as peer:
        peer.wait_steps(20)
        assert peer.ask("window", steps=3)["ok"]
        window = read_window(*next_window(peer))
        assert (window.status, len(window.profiled_step_ns)) == ("ok", 3)
        updates = [each.count for each in window.by_op if each.op.startswith("Optimizer.step")]
        assert updates == [pytest.approx(6)] or not updates  # of a step: one for each parameter


BITWISE = """
def trained(watched):
    global model, optimizer, step
    model, optimizer = made()
    step = stepper(model, optimizer)
    if watched: begin()
    else:
        for _ in range(20): step()
    for _ in range(400):
        step()
        if watched: time.sleep(0.003)
    return agent_job.fingerprint(torch, model, optimizer)
digests = [trained(False), trained(False), trained(True)]
assert len(set(digests)) == 1, digests
end()
"""


def test_training_goes_on_with_the_same_bits(job: AgentJob) -> None:
    with job.session(BITWISE + AGAIN) as peer:
        for _ in range(2):
            assert peer.ask("window", steps=3)["ok"]
            assert read_window(*next_window(peer)).status == "ok"
            peer.events.clear()
        peer.ask("detach", keep=False)


SCHEDULED = """
begin()
with own(schedule=torch.profiler.schedule(wait=1000, warmup=1, active=1)) as prof:
    while not agent_job.told():  # it may be told after the agent has left
        step()
        prof.step()
end()
"""
PROFILES = """
begin()
while not torch.autograd._profiler_enabled(): step()
step()
with own() as prof:
    for _ in range(3): step()
counted = sum(each.count for each in prof.key_averages() if each.key == "aten::addmm")
assert counted == 6, counted  # its own profile is whole
end()
"""
FORKS = """
begin()
while not torch.autograd._profiler_enabled(): step()
pid = os.fork()
if pid == 0:
    os._exit(7 if torch.autograd._profiler_enabled() else 0)
assert os.waitpid(pid, 0)[1] == 0, "the child goes on recording"
end()
"""


@pytest.mark.parametrize(
    ("code", "steps", "why"),
    [(SCHEDULED, 3, "profiled already"), (PROFILES, 12, "started a profiler"), (FORKS, 12, "or a process")],
)
def test_a_window_gives_way_to_what_the_job_does(code: str, steps: int, why: str, job: AgentJob) -> None:
    with job.session(code) as peer:
        peer.wait_steps(4)
        assert peer.ask("window", steps=steps)["ok"]
        told, fd = next_window(peer)
        assert (told.status, fd) == ("abstained", None)
        assert why in (told.why or "")
        if code is SCHEDULED:
            job.tell()
        peer.ask("detach", keep=False)


STANDS_STILL = """
begin()
while not torch.autograd._profiler_enabled(): step()
print("profiled", flush=True)
while ended.locked(): time.sleep(0.01)
step()
step()
end()
"""


@pytest.mark.parametrize("goodbye", ["detach", "link lost"])
def test_a_session_that_ends_while_training_stands_still_leaves_no_profiler_on(
    goodbye: str, job: AgentJob
) -> None:
    with job.session(STANDS_STILL) as peer:
        peer.wait_steps(4)
        assert peer.ask("window", steps=12)["ok"]
        job.until("profiled")
        if goodbye == "detach":
            assert peer.ask("detach", keep=False)["left"] == ["profiler window (undone at the next step)"]
