"""A session from hello to the end, in a real job: nothing is left, whatever ends it."""

from __future__ import annotations

import itertools
import struct
import time
from pathlib import Path

import pytest

from autobrrr.agent.wire import framing, ring_layout
from support.agent.agent import AgentJob

pytestmark = pytest.mark.integration

JOB = """
import json, os, sys, time, torch
from support.agent import agent_job
torch.set_num_threads(1); torch.manual_seed(0)
from torch import nn
from support.updates import Seen
seen = Seen(torch.optim.AdamW)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 16)), batch_size=8)

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

for _ in range(20):
    step()
"""


def job(folder: Path, rest: str) -> AgentJob:
    return AgentJob(JOB + rest, folder)


REATTACH = """
before = None
for turn in range(TURNS):
    ended = agent_job.begin()
    train_until(ended)
    agent_job.wait_ended(ended)
    now = agent_job.snapshot(torch, model, optimizer)
    if turn == 0:
        before = now
    for name in before:
        assert before[name] == now[name], (turn, name, before[name], now[name])
assert not [name for name in sys.modules if name.startswith("_autobrrr_")]
print("equal")
"""


def test_after_every_detach_everything_is_as_before(tmp_path: Path) -> None:
    first = "before = agent_job.snapshot(torch, model, optimizer)\nTURNS = 12\n"
    with job(
        tmp_path, first + REATTACH.replace("before = None\n", "").replace("turn == 0", "False")
    ) as running:
        for turn in range(12):
            peer = running.peer()
            peer.wait_steps(30)
            if turn % 3 == 0:
                assert peer.ask("apply", remedy="optimizer.foreach")["ok"]
            if turn % 4 == 0:
                assert peer.ask("trace", steps=2)["ok"]
            assert peer.ask("detach", keep=False)["left"] == []
            peer.close()
        assert "equal" in running.output()


def test_a_sidecar_that_vanishes_leaves_nothing_on(tmp_path: Path) -> None:
    first = "before = agent_job.snapshot(torch, model, optimizer)\nTURNS = 8\n"
    check = "step(); assert seen.last == 'plain', 'the remedy is still on'\n"
    rest = first + REATTACH.replace("before = None\n", "").replace("turn == 0", "False") + check
    with job(tmp_path, rest) as running:
        for turn in range(8):
            peer = running.peer()
            if turn % 2:
                peer.wait_steps(5 + 7 * turn)
                assert peer.ask("apply", remedy="optimizer.foreach")["ok"]
                framing.send(peer.link, {"do": "trace", "id": 99, "steps": 6})
            time.sleep(0.013 * turn)
            peer.close()
        assert "equal" in running.output()


def test_steps_are_recorded_in_order_and_sampled_phases_fill_them(tmp_path: Path) -> None:
    with job(tmp_path, "ended = agent_job.begin()\ntrain_until(ended)\n") as running:
        peer = running.peer()
        assert peer.hello["facts"]["pid"] == running.process.pid
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
        assert anatomy["train_tid"] == running.process.pid
        assert peer.ask("detach", keep=False)["left"] == []
        running.output()


def test_remedies_change_at_a_boundary_and_are_marked(tmp_path: Path) -> None:
    with job(tmp_path, "ended = agent_job.begin()\ntrain_until(ended)\nprint(seen.last)") as running:
        peer = running.peer()
        peer.wait_steps(30)
        on = peer.ask("apply", remedy="optimizer.foreach", options={})
        assert on["ok"], on
        assert on["class"] == "bitwise"
        second = peer.ask("apply", remedy="optimizer.fused")
        assert not second["ok"]
        assert "optimizer.foreach" in second["why"]
        assert not peer.ask("apply", remedy="optimizer.foreach", options={"depth": 3})["ok"]
        assert not peer.ask("apply", remedy="no.such")["ok"]
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
        assert "foreach" in running.output()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xffxxxx",
        struct.pack(">I", 4) + b"null",
    ],
)
def test_a_frame_that_is_none_ends_the_session_and_nothing_else(tmp_path: Path, garbage: bytes) -> None:
    rest = "before = agent_job.snapshot(torch, model, optimizer)\nTURNS = 1\n" + REATTACH.replace(
        "before = None\n", ""
    ).replace("turn == 0", "False")
    with job(tmp_path, rest) as running:
        peer = running.peer()
        peer.wait_steps(20)
        peer.link.sendall(garbage)
        with pytest.raises((framing.Closed, framing.BadFrame, OSError)):
            peer.event("the end")
        assert "equal" in running.output()


def test_a_well_framed_command_that_is_wrong_is_answered_and_the_link_stays(tmp_path: Path) -> None:
    with job(tmp_path, "ended = agent_job.begin()\ntrain_until(ended)\n") as running:
        peer = running.peer()
        peer.wait_steps(20)
        for wrong in (
            {"do": "dance"},
            {"do": 7},
            {},
            {"do": "trace", "steps": "x"},
            {"do": "apply"},
            {"do": "undo"},
        ):
            framing.send(peer.link, {"id": 5, **wrong})
            while True:
                reply = peer.receive()
                if "reply" in reply:
                    break
            assert reply["ok"] is False
            assert reply["why"]
        assert peer.ask("facts")["ok"]
        assert peer.ask("detach", keep=False)["ok"]
        running.output()


PLANTED = """
import {module} as planted
def wrong(*args, **kwargs):
    raise ValueError("planted")
before = agent_job.snapshot(torch, model, optimizer)
ended = agent_job.begin()
for _ in range(30): step()
planted.{cls}.{name}.__code__ = wrong.__code__  # also where the method is bound already
train_until(ended)
agent_job.wait_ended(ended)
now = agent_job.snapshot(torch, model, optimizer)
for name in before:
    assert before[name] == now[name], (name, before[name], now[name])
print("went on")
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
    tmp_path: Path, module: str, cls: str, name: str
) -> None:
    with job(tmp_path, PLANTED.format(module=f"autobrrr.agent.{module}", cls=cls, name=name)) as running:
        peer = running.peer()
        removed = peer.event("removed")
        assert "planted" in str(removed["why"])
        assert "went on" in running.output()


def test_a_task_that_fails_is_taken_off_and_reported(tmp_path: Path) -> None:
    rest = """
from autobrrr.agent.measure import traced_steps as tracing
def wrong(*args): raise ValueError("planted")
tracing.FloorMeter = wrong
ended = agent_job.begin()
train_until(ended)
"""
    with job(tmp_path, rest) as running:
        peer = running.peer()
        peer.wait_steps(20)
        assert peer.ask("trace")["ok"]
        traced = peer.event("traced")["traced"]
        assert traced["status"] == "abstained"
        assert "planted" in traced["why"]
        assert peer.ask("detach", keep=False)["left"] == []
        running.output()


def test_what_is_asked_for_at_a_task_s_result_is_not_refused_as_busy(tmp_path: Path) -> None:
    rest = """
from autobrrr.agent.measure import traced_steps as traced
finish = traced.TraceTask._finish
def dawdles(task, why):
    finish(task, why)  # the event is out, and the task not yet over
    time.sleep(0.2)
traced.TraceTask._finish = dawdles
ended = agent_job.begin()
train_until(ended)
"""
    with job(tmp_path, rest) as running:
        peer = running.peer()
        peer.wait_steps(20)
        assert peer.ask("trace", steps=3)["ok"]
        assert peer.event("traced")["traced"]["status"] == "ok"
        assert peer.ask("trace", steps=3) == {"v": 1, "reply": 2, "ok": True}
        assert peer.event("traced")["traced"]["status"] == "ok"
        assert peer.ask("detach", keep=False)["left"] == []
        running.output()


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
print("child", os.read(r, 1000).decode(), flush=True)
train_until(ended)
"""


def test_a_forked_child_trains_without_the_agent(tmp_path: Path) -> None:
    with job(tmp_path, FORK) as running:
        peer = running.peer()
        peer.wait_steps(90)
        steps = peer.steps()
        starts = [step.start_ns for step in steps]
        assert starts == sorted(starts), "the child has written into the ring"
        assert peer.ask("facts")["ok"]
        assert peer.ask("detach", keep=False)["left"] == []
        assert 'child ["torch.optim.optimizer", 0, false]' in running.output()


def test_training_in_another_thread_is_followed_there(tmp_path: Path) -> None:
    rest = """
import threading
ended = agent_job.begin()
def work():
    print("tid", threading.get_native_id(), flush=True)
    train_until(ended)
thread = threading.Thread(target=work)
thread.start(); thread.join()
"""
    with job(tmp_path, rest) as running:
        peer = running.peer()
        peer.wait_steps(30)
        tid = peer.ask("facts")["facts"]["train_tid"]
        assert tid != running.process.pid
        assert peer.ask("apply", remedy="optimizer.foreach")["ok"]
        assert peer.ask("detach", keep=False)["left"] == []
        assert f"tid {tid}" in running.output()


def test_a_patch_put_over_ours_stays_and_is_reported(tmp_path: Path) -> None:
    rest = """
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
print("theirs works")
"""
    with job(tmp_path, rest) as running:
        peer = running.peer()
        peer.wait_steps(60)
        assert peer.ask("detach", keep=False)["left"] == ["Optimizer._optimizer_step_code"]
        assert "theirs works" in running.output()


def test_the_mapped_page_is_given_back_at_the_end(tmp_path: Path) -> None:
    rest = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
whole = ctypes.c_int
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, whole, whole, whole, ctypes.c_long)
address = libc.mmap(None, 4096 * 8, 3, 0x22, -1, 0)
ended = agent_job.begin(mapped=[address, 4096 * 8])
train_until(ended)
agent_job.wait_ended(ended)
spans = [line.split()[0].split("-") for line in open("/proc/self/maps")]
assert not any(int(a, 16) <= address < int(b, 16) for a, b in spans)
print("unmapped")
"""
    with job(tmp_path, rest) as running:
        peer = running.peer()
        assert peer.ask("detach", keep=False)["left"] == []
        assert "unmapped" in running.output()


def test_nobody_listening_is_no_harm(tmp_path: Path) -> None:
    rest = """
before = agent_job.snapshot(torch, model, optimizer)
ended = agent_job.begin(link="/nowhere/link.sock")
train_until(ended)
agent_job.wait_ended(ended)
assert before == agent_job.snapshot(torch, model, optimizer)
print("unharmed")
"""
    with job(tmp_path, rest) as running:
        assert "unharmed" in running.output()


def test_a_readonly_session_changes_nothing(tmp_path: Path) -> None:
    with job(tmp_path, "ended = agent_job.begin(readonly=True)\ntrain_until(ended)\n") as running:
        peer = running.peer()
        peer.wait_steps(20)
        for command, fields in (("trace", {}), ("apply", {"remedy": "optimizer.foreach"})):
            reply = peer.ask(command, **fields)
            assert not reply["ok"]
            assert "read-only" in reply["why"]
        assert peer.ask("detach", keep=False)["left"] == []
        running.output()


def test_remedies_that_need_the_training_thread_are_undone_at_its_next_boundary(tmp_path: Path) -> None:
    rest = """
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
print("undone")
"""
    with job(tmp_path, rest) as running:
        peer = running.peer()
        assert peer.ask("apply", remedy="optimizer.foreach")["ok"]
        running.until("remedy on")
        peer.close()
        assert "undone" in running.output()


def test_loaders_are_as_before_though_a_sampled_step_was_wrapped_around_their_remedy(tmp_path: Path) -> None:
    rest = """
from torch.utils.data import DataLoader
plain = DataLoader.__dict__["__iter__"]
loader = DataLoader(torch.arange(64.0), batch_size=8)
ended = agent_job.begin()
while ended.locked():
    for _ in loader:
        step()
assert DataLoader.__dict__["__iter__"] is plain, DataLoader.__dict__["__iter__"]
print("as before")
"""
    with job(tmp_path, rest) as running:
        peer = running.peer()
        peer.wait_steps(30)
        assert peer.ask("apply", remedy="loader.workers", options={"workers": 1})["ok"]
        assert peer.ask("watch", bursts_every=2, burst_steps=1, cost_ppm=900_000)["ok"]
        peer.wait_steps(90)
        assert peer.ask("detach", keep=False)["left"] == []
        assert "as before" in running.output()


def test_a_remedy_that_cannot_be_undone_is_reported_as_lost(tmp_path: Path) -> None:
    rest = """
from autobrrr.agent.remedies.registry import remedy
@remedy("test.sticky", treats=("overhead",), reach="live", cls="bitwise", doc="Sticks.")
def sticky(job, options):
    def undo(): raise RuntimeError("it sticks")
    return undo
ended = agent_job.begin()
train_until(ended)
"""
    with job(tmp_path, rest) as running:
        peer = running.peer()
        peer.wait_steps(10)
        token = peer.ask("apply", remedy="test.sticky")["token"]
        assert not peer.ask("undo", token=token)["ok"]
        lost = peer.event("remedy_lost")
        assert lost["token"] == token
        assert "it sticks" in str(lost["why"])
        assert peer.ask("detach", keep=False)["left"] == []
        running.output()
