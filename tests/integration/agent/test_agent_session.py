"""Sessions from hello to the end, in one real job: nothing is left, whatever ends each."""

import itertools
import json
import struct
from collections.abc import Callable, Iterator

import pytest

from autobrrr.agent.wire import framing, ring_layout
from support.agent.agent import SERVES, AgentJob, Peer

pytestmark = pytest.mark.integration

JOB = """
import json, os, sys, threading, time, torch
from support.agent import agent_job
from support.agent.visible import differing, visible_state
torch.set_num_threads(1); torch.manual_seed(0)
from torch import nn
from torch.utils.data import DataLoader
from support.updates import Seen
from autobrrr.agent.measure import traced_steps
from autobrrr.agent.remedies.registry import remedy
seen = Seen(torch.optim.AdamW)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters())
data = DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 16)), batch_size=8)

def batches():
    while True:
        yield from data

source = batches()

def step():
    (x,) = next(source)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()

def train_until(ended):
    while ended.locked():
        step()
    for _ in range(5):
        step()

def session(**options):
    before = visible_state(model, optimizer)
    ended = agent_job.begin(**options)
    train_until(ended)
    agent_job.wait_ended(ended)
    assert not (other := differing(before, visible_state(model, optimizer))), other
    assert seen.last == "plain", "the remedy is still on"
    assert not [name for name in sys.modules if name.startswith("_autobrrr_")]

@remedy("test.sticky", treats=("overhead",), reach="live", cls="bitwise", doc="Sticks.")
def sticky(job, options):
    def undo(): raise RuntimeError("it sticks")
    return undo

for _ in range(20):
    step()
session(link="/nowhere/link.sock")  # nobody listens
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentJob]:
    with AgentJob(JOB + SERVES, tmp_path_factory.mktemp("session")) as running:
        yield running


def detach(peer: Peer) -> None:
    assert peer.ask("detach", keep=False)["left"] == []


def remedy_and_trace(peer: Peer) -> None:
    peer.wait_steps(20)
    assert peer.ask("apply", remedy="optimizer.foreach")["ok"]
    framing.send(peer.link, {"do": "trace", "id": 99, "steps": 6})


def in_the_middle(peer: Peer) -> None:
    remedy_and_trace(peer)
    detach(peer)


def garbage(peer: Peer) -> None:
    peer.wait_steps(20)
    peer.link.sendall(b"\xff\xff\xff\xffxxxx")
    with pytest.raises((framing.Closed, framing.BadFrame, OSError)):
        peer.event("the end")


def no_command(peer: Peer) -> None:
    peer.link.sendall(struct.pack(">I", 4) + b"null")


def at_once(peer: Peer) -> None:
    pass


@pytest.mark.parametrize(
    "end",
    [detach, in_the_middle, remedy_and_trace, garbage, no_command, at_once],
    ids=lambda each: each.__name__,
)
def test_whatever_ends_a_session_everything_is_as_before(job: AgentJob, end: Callable[[Peer], None]) -> None:
    for _ in range(2):
        with job.session("session()") as peer:
            end(peer)


def test_steps_are_recorded_in_order_and_sampled_phases_fill_them(job: AgentJob) -> None:
    with job.session("session()") as peer:
        assert peer.hello["facts"]["pid"] == job.process.pid
        steps = peer.wait_steps(200)
        assert [step.seq for step in steps] == list(range(len(steps)))
        assert all(earlier.end_ns <= later.start_ns for earlier, later in itertools.pairwise(steps))
        assert [step.flags & ring_layout.SETTLING != 0 for step in steps[:3]] == [True] * 3
        assert not any(step.flags & ring_layout.SETTLING for step in steps[50:])
        sampled = [step for step in steps if step.flags & ring_layout.PHASES]
        assert sampled
        for step in sampled:
            one = step.sampled
            parts = [one[f"{name}_ns"] for name in ("data_wait", "forward", "backward", "optimizer")]
            assert all(part > 0 for part in parts)
            assert sum(parts) <= step.duration_ns
            assert (one["backwards"], one["fires"], one["samples"]) == (1, 1, 8)
        anatomy = peer.event("anatomy")["anatomy"]
        assert anatomy["optimizers"] == ["AdamW"]
        assert anatomy["roots"] == ["Sequential"]
        assert anatomy["parameters"] == 16 * 32 + 32 + 32 * 4 + 4
        assert anatomy["model_bytes"] == anatomy["parameter_bytes"] == 4 * anatomy["parameters"]
        assert anatomy["train_tid"] == job.process.pid
        detach(peer)


KEEPS = """
ended = agent_job.begin()
train_until(ended)
assert seen.last == "foreach"
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(20): step()
"""


def test_remedies_change_at_a_boundary_are_marked_and_stay_where_they_are_to_be_kept(job: AgentJob) -> None:
    with job.session(KEEPS) as peer:
        peer.wait_steps(30)
        on = peer.ask("apply", remedy="optimizer.foreach", options={})
        assert on["ok"], on
        assert on["class"] == "bitwise"
        second = peer.ask("apply", remedy="optimizer.fused")
        assert not second["ok"]
        assert "optimizer.foreach" in second["why"]
        peer.wait_steps(on["seq"] + 20)
        off = peer.ask("undo", token=on["token"])
        assert off["ok"]
        assert not peer.ask("undo", token=on["token"])["ok"]
        steps = peer.wait_steps(off["seq"] + 20)
        assert {step.arm for step in steps if step.seq < on["seq"]} == {0}
        assert {step.arm for step in steps if on["seq"] <= step.seq < off["seq"]} == {on["arm"]}
        assert {step.arm for step in steps if step.seq >= off["seq"]} == {off["arm"]}
        assert {step.seq for step in steps if step.flags & ring_layout.SWITCHED} == {on["seq"], off["seq"]}
        kept = peer.ask("apply", remedy="optimizer.foreach")
        assert kept["ok"]
        assert peer.ask("facts")["active"][0]["token"] == kept["token"]
        assert peer.ask("detach", keep=True)["left"] == []


WRONG: tuple[dict[str, object], ...] = (
    *({"do": "dance"}, {"do": 7}, {}, {"do": "trace", "steps": "x"}, {"do": "apply"}, {"do": "undo"}),
    {"do": "apply", "remedy": "no.such"},
    {"do": "apply", "remedy": "optimizer.foreach", "options": {"depth": 3}},
)


def test_a_command_that_is_wrong_is_answered_and_the_link_stays(job: AgentJob) -> None:
    with job.session("session()") as peer:
        peer.wait_steps(20)
        for wrong in WRONG:
            framing.send(peer.link, {"id": 5, **wrong})
            while "reply" not in (reply := peer.receive()):
                pass
            assert reply["ok"] is False
            assert reply["why"]
        assert peer.ask("facts")["ok"]
        detach(peer)


def test_a_readonly_session_changes_nothing(job: AgentJob) -> None:
    with job.session("session(readonly=True)") as peer:
        peer.wait_steps(20)
        for command, fields in (("trace", {}), ("window", {}), ("apply", {"remedy": "optimizer.foreach"})):
            reply = peer.ask(command, **fields)
            assert not reply["ok"]
            assert "read-only" in reply["why"]
        detach(peer)


PLANTED = """
import {module} as planted
def wrong(*args, **kwargs):
    raise ValueError("planted")
right = planted.{cls}.{name}.__code__
before = visible_state(model, optimizer)
ended = agent_job.begin()
for _ in range(30): step()
planted.{cls}.{name}.__code__ = wrong.__code__  # also where the method is bound already
train_until(ended)
agent_job.wait_ended(ended)
planted.{cls}.{name}.__code__ = right
assert not (other := differing(before, visible_state(model, optimizer))), other
"""


@pytest.mark.parametrize(
    ("module", "cls", "name"),
    [
        ("loop.train_loop", "TrainLoop", "_close"),
        ("phases.sampling_schedule", "Bursts", "wants"),
        ("phases.phase_clock", "PhaseClock", "root_enter"),
        ("wire.ring_writer", "StepRing", "write_sampled"),
        ("agent_session", "AgentSession", "_tick"),
    ],
)
def test_an_error_of_ours_takes_the_agent_out_and_training_goes_on(
    job: AgentJob, module: str, cls: str, name: str
) -> None:
    with job.session(PLANTED.format(module=f"autobrrr.agent.{module}", cls=cls, name=name)) as peer:
        assert "planted" in str(peer.event("removed")["why"])


FAILS = """
right = traced_steps.{name}
{wrong}
traced_steps.{name} = wrong
try: session()
finally: traced_steps.{name} = right
"""


def test_a_task_that_fails_is_taken_off_and_reported(job: AgentJob) -> None:
    wrong = 'def wrong(*args): raise ValueError("planted")'
    with job.session(FAILS.format(name="FloorMeter", wrong=wrong)) as peer:
        peer.wait_steps(20)
        assert peer.ask("trace")["ok"]
        traced = peer.event("traced")["traced"]
        assert traced["status"] == "abstained"
        assert "planted" in traced["why"]
        detach(peer)


FORK = """
ended = agent_job.begin()
for _ in range(60): step()
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    fds = [os.readlink(link) for link in links if os.path.lexists(link)]
    for _ in range(40): step()
    patched = torch.optim.Optimizer.__dict__["_optimizer_step_code"].__module__
    ours = sum("socket" in fd or "ring" in fd for fd in fds)
    os.write(w, json.dumps([patched, ours, "ring" in open("/proc/self/maps").read()]).encode())
    os._exit(0)
os.waitpid(pid, 0)
print(os.read(r, 1000).decode(), flush=True)
os.close(r), os.close(w)
train_until(ended)
"""


def test_a_forked_child_trains_without_the_agent(job: AgentJob) -> None:
    with job.session(FORK) as peer:
        peer.wait_steps(90)
        starts = [step.start_ns for step in peer.steps()]
        assert starts == sorted(starts), "the child has written into the ring"
        assert peer.ask("facts")["ok"]
        detach(peer)
    assert json.loads(job.said) == ["torch.optim.optimizer", 0, False]


THREAD = """
ended = agent_job.begin()
def work():
    print(threading.get_native_id(), flush=True)
    train_until(ended)
thread = threading.Thread(target=work)
thread.start(); thread.join()
"""


def test_training_in_another_thread_is_followed_there(job: AgentJob) -> None:
    with job.session(THREAD) as peer:
        peer.wait_steps(30)
        tid = peer.ask("facts")["facts"]["train_tid"]
        assert tid != job.process.pid
        assert peer.ask("apply", remedy="optimizer.foreach")["ok"]
        detach(peer)
    assert int(job.said) == tid


OVER_OURS = """
plain = torch.optim.Optimizer._optimizer_step_code
ended = agent_job.begin()
while (ours := torch.optim.Optimizer._optimizer_step_code) is plain: step()
calls = []
def theirs(self):
    calls.append(1)
    ours(self)
torch.optim.Optimizer._optimizer_step_code = theirs
train_until(ended)
assert torch.optim.Optimizer.__dict__["_optimizer_step_code"] is theirs
count = len(calls)
for _ in range(20): step()
assert len(calls) == count + 20
torch.optim.Optimizer._optimizer_step_code = plain
"""


def test_a_patch_put_over_ours_stays_and_is_reported(job: AgentJob) -> None:
    with job.session(OVER_OURS) as peer:
        peer.wait_steps(60)
        assert peer.ask("detach", keep=False)["left"] == ["Optimizer._optimizer_step_code"]


PAUSES = """
group = optimizer.param_groups[0]
ended = agent_job.begin()
while seen.last != "foreach": step()
print("remedy on", flush=True)
agent_job.wait_ended(ended)  # a long pause of training, in which the sidecar dies
assert group["foreach"] is True, "undone behind the back of the training thread"
step()
assert group["foreach"] is None
assert torch.optim.Optimizer.__dict__["_optimizer_step_code"].__module__ == "torch.optim.optimizer"
step()
"""


def test_remedies_that_need_the_training_thread_are_undone_at_its_next_boundary(job: AgentJob) -> None:
    with job.session(PAUSES) as peer:
        assert peer.ask("apply", remedy="optimizer.foreach")["ok"]
        job.until("remedy on")


def test_a_remedy_that_cannot_be_undone_is_reported_as_lost(job: AgentJob) -> None:
    with job.session("session()") as peer:
        peer.wait_steps(10)
        token = peer.ask("apply", remedy="test.sticky")["token"]
        assert not peer.ask("undo", token=token)["ok"]
        lost = peer.event("remedy_lost")
        assert lost["token"] == token
        assert "it sticks" in str(lost["why"])
        detach(peer)


LOADS = """
plain = DataLoader.__dict__["__iter__"]
loader = DataLoader(torch.arange(64.0), batch_size=8)
ended = agent_job.begin()
while ended.locked():
    for _ in loader:
        step()
assert DataLoader.__dict__["__iter__"] is plain, DataLoader.__dict__["__iter__"]
"""


def test_loaders_are_as_before_though_a_sampled_step_was_wrapped_around_their_remedy(job: AgentJob) -> None:
    with job.session(LOADS) as peer:
        peer.wait_steps(30)
        assert peer.ask("apply", remedy="loader.workers", options={"workers": 1})["ok"]
        assert peer.ask("watch", bursts_every=2, burst_steps=1, cost_ppm=900_000)["ok"]
        peer.wait_steps(90)
        detach(peer)
