"""Steps and phases of jobs as people write them: right to the step, and bitwise left alone.

The truth is the job's own: a clock at the end of each turn of its loop, a sleep of known length in forward.
"""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from autobrrr.agent.wire import ring_layout
from support import real_jobs
from support.agent.agent import AgentJob, Step

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SCRIPT = """
import json, os, random, sys, torch
from support.agent import agent_job
from support import real_jobs
torch.set_num_threads(1)
kind = sys.stdin.readline().strip()
if kind == "lightning":
    import lightning  # draws random numbers: not within the first run

def train(steps):
    torch.manual_seed(0); random.seed(0)
    marks, ended, told = [], None, [False]
    def goes_on():
        nonlocal ended
        if steps is not None:
            return len(marks) < steps
        if len(marks) == 6 and ended is None:
            ended = agent_job.begin()
        told[0] = told[0] or agent_job.told()
        return not told[0]
    losses, things = real_jobs.KINDS[kind](goes_on, marks)
    if ended is not None:
        agent_job.wait_ended(ended)
    return dict(marks=marks, losses=losses, digest=agent_job.fingerprint(torch, *things))

watched = train(None)
runs = [watched, *(train(len(watched["marks"])) for _ in range(2))]
print(json.dumps(runs), flush=True)
"""


@dataclass(frozen=True)
class Seen:
    """One job, watched and not."""

    runs: list[dict[str, object]]  # the watched one first
    steps: list[Step]
    traced: dict[str, object]
    recorded: dict[str, object]
    anatomy: dict[str, object]
    left: list[str]


def watch(kind: str, folder: Path) -> Seen:
    with AgentJob(SCRIPT, folder) as job:
        job.tell(kind)
        peer = job.peer()
        peer.wait_steps(40)
        assert peer.ask("trace", steps=4)["ok"]
        traced = peer.event("traced")["traced"]
        recorded = peer.event("recorded")["recorded"]
        anatomy = peer.ask("facts")["anatomy"]
        peer.wait_steps(peer.steps()[-1].seq + 12)
        left = peer.ask("detach", keep=False)["left"]
        steps = peer.steps()
        peer.close()
        job.tell()
        (runs,) = [json.loads(line) for line in job.output().splitlines() if line.startswith("[{")]
    return Seen(runs=runs, steps=steps, traced=traced, recorded=recorded, anatomy=anatomy, left=left)


@pytest.fixture(scope="module", params=list(real_jobs.KINDS))
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return watch(request.param, tmp_path_factory.mktemp(request.param))


def sampled(seen: Seen) -> list[Step]:
    wrong = ring_layout.SETTLING | ring_layout.TRACED | ring_layout.SKIPPED
    return [step for step in seen.steps if step.flags & ring_layout.PHASES and not step.flags & wrong]


def test_every_turn_of_the_loop_is_one_step(seen: Seen) -> None:
    marks = seen.runs[0]["marks"]
    known = itertools.dropwhile(lambda step: step.flags & ring_layout.SETTLING, seen.steps)
    settled = list(known)
    assert len(settled) > 60
    for earlier, later in itertools.pairwise(settled):
        assert later.seq == earlier.seq + 1
        # A turn ends a little after the update that closes its step.
        assert sum(earlier.start_ns <= mark < later.start_ns for mark in marks) == 1, earlier
    assert seen.anatomy["source"] == "optimizer"
    assert len(seen.anatomy["optimizers"]) == 1


def test_phases_fill_the_step_and_hold_what_was_planted(seen: Seen) -> None:
    steps = sampled(seen)
    assert len(steps) >= 4
    for step in steps:
        one = step.sampled
        spent = [one[f"{name}_ns"] for name in ("data_wait", "forward", "backward", "optimizer")]
        assert sum(spent) <= step.duration_ns
        calls = one["backwards"]
        assert calls >= 1
        assert one["fires"] == 1
        assert one["forward_ns"] >= calls * real_jobs.PLANTED_S * 1e9
        assert one["backward_ns"] > 0
        assert one["optimizer_ns"] > 0
        assert one["samples"] in (8, 16)


def test_attaching_changes_no_bit(seen: Seen) -> None:
    watched, never, again = seen.runs
    assert (never["losses"], never["digest"]) == (again["losses"], again["digest"])
    assert watched["losses"] == never["losses"]
    assert watched["digest"] == never["digest"]
    assert seen.left == []


def test_steps_were_traced_and_their_kernels_lie_in_their_phases(seen: Seen) -> None:
    assert seen.traced["status"] == "ok", seen.traced["why"]
    kernels = seen.traced["kernel_by_phase_ns"]
    assert all(kernels[phase] > 0 for phase in ("forward", "backward", "optimizer"))
    plain = seen.traced["plain_by_phase_ns"]
    assert plain["forward"] >= real_jobs.PLANTED_S * 1e9
    held_back = any(
        step.flags & ring_layout.SKIPPED for step in seen.steps
    )  # perhaps that of the recorded step
    if seen.recorded["status"] != "ok" and held_back:
        assert seen.recorded["why"] == "the step that was recorded was no ordinary one"
    else:
        assert seen.recorded == {"status": "ok"}


@pytest.mark.parametrize("seen", ["closure"], indirect=True)
def test_all_evaluations_of_a_closure_belong_to_one_step(seen: Seen) -> None:
    assert {step.sampled["backwards"] for step in sampled(seen)} <= {2, 3, 4}
    assert max(step.sampled["backwards"] for step in sampled(seen)) > 1


@pytest.mark.parametrize("seen", ["scaler"], indirect=True)
def test_an_update_that_is_held_back_ends_a_step_that_says_so(seen: Seen) -> None:
    skipped = [step.seq for step in seen.steps if step.flags & ring_layout.SKIPPED]
    assert len(skipped) > 10
    gaps = {later - earlier for earlier, later in itertools.pairwise(skipped)}
    assert gaps == {real_jobs.SKIPPED_EVERY}


@pytest.mark.parametrize("seen", ["lightning"], indirect=True)
def test_a_trainers_loader_and_module_are_found(seen: Seen) -> None:
    assert seen.anatomy["roots"] == ["Sequential"]
    assert seen.anatomy["loader_workers"] == 0
    assert all(step.sampled["data_wait_ns"] > 0 for step in sampled(seen))


UNTIMED = """
import torch
from support.agent import agent_job
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.AdamW(model.parameters())
PREPARE
def step():
    optimizer.zero_grad()
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
for _ in range(6): step()
ended = agent_job.begin()
while ended.locked(): step()
"""
# What dynamo counts once it has compiled something: it is read, nothing has to be compiled for it.
COMPILED = """
import torch._dynamo.utils
torch._dynamo.utils.counters["stats"]["unique_graphs"] = 1
"""
HOOKED = """
from torch.optim.optimizer import register_optimizer_step_pre_hook
register_optimizer_step_pre_hook(lambda *_: None)
"""


@pytest.mark.parametrize(
    ("prepare", "untimed"),
    [(COMPILED, {"forward_ns", "optimizer_ns"}), (HOOKED, {"optimizer_ns"})],
    ids=["compiled", "hooked"],
)
def test_a_phase_that_can_not_be_hooked_is_not_measured_rather_than_nothing(
    tmp_path: Path, prepare: str, untimed: set[str]
) -> None:
    with AgentJob(UNTIMED.replace("PREPARE", prepare), tmp_path) as job:
        peer = job.peer()
        steps = [step for step in peer.wait_steps(150) if step.flags & ring_layout.PHASES]
        assert peer.ask("detach", keep=False)["left"] == []
        peer.close()
        job.output()
    assert steps
    for step in steps:
        for name in ("forward_ns", "backward_ns", "optimizer_ns"):
            assert (step.sampled[name] == -1) == (name in untimed), name
