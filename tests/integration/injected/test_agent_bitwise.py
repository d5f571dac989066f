"""Watched, traced and probed by frames, a training run ends with the bits it would have had."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path

import pytest

from autobrrr.injected.wire import ring_layout
from support.injected.agent import AgentJob, Peer

pytestmark = pytest.mark.integration

SCRIPT = """
import json, random, sys, time, torch
from support.injected import agent_job, agent_kinds
torch.set_num_threads(1)

def train(kind, watched):
    torch.manual_seed(0); random.seed(0)
    step, things = {**agent_kinds.KINDS, **agent_kinds.STRANGE}[kind]()
    for _ in range(10): step()
    ended = agent_job.begin() if watched else None
    for _ in range(STEPS):
        step()
        if watched: time.sleep(0.003)
    digest = agent_job.fingerprint(torch, *things)
    if watched:
        print(json.dumps(dict(trained=kind)), flush=True)
        while ended.locked(): step()
    return digest

STEPS = 150
for kind in sys.stdin.readline().split():
    never, watched = train(kind, False), train(kind, True)
    again = never if watched == never else train(kind, False)  # whose fault is it?
    digests = [never, again, watched]
    modes = torch._C._len_torch_dispatch_stack()
    print(json.dumps(dict(kind=kind, digests=digests, modes=modes)), flush=True)
"""

KINDS = [
    "dropout",
    "convolution",
    "lbfgs",
    "checkpoint_reentrant",
    "checkpoint_not_reentrant",
    "amp",
    "scaler",
    "gan",
    "lstm",
    "sparse",
    "by_hand",
    "loader",
]
SENSITIVE = ["noisy_or", "by_spectrum", "largest_sign"]  # they compute other bits under a dispatch mode
STRANGE = [  # watched, and traced or not: their bits stay what they were
    "sam",
    "truncated_bptt",
    "gradient_penalty",
    "functional_gradients",
    "optimizer_in_backward",
    "covered",
    "meta_learning",
    "averaged",
    "thawed",
    "scripted",
    "tied_and_normed",
    "retained",
    "complex_numbers",
    "own_function",
    "spawned_loader",
    *SENSITIVE,
]


def serve(job: AgentJob, seen: dict[str, dict[str, object]], trained: threading.Semaphore) -> None:
    for kind in (*KINDS, *STRANGE):
        peer: Peer = job.peer()
        peer.wait_steps(8)
        assert peer.ask("trace", steps=4)["ok"]
        traced = peer.event("traced")["traced"]
        assert peer.ask("frames", for_ms=60)["ok"]
        trained.acquire()
        reply = peer.ask("detach", keep=False)
        seen.setdefault(kind, {}).update(traced=traced, left=reply["left"], steps=peer.steps())
        peer.close()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    folder: Path = tmp_path_factory.mktemp("bitwise")
    seen: dict[str, dict[str, object]] = {}
    trained = threading.Semaphore(0)
    with AgentJob(SCRIPT, folder) as job:
        server = threading.Thread(target=serve, args=(job, seen, trained), daemon=True)
        server.start()
        job.tell(" ".join((*KINDS, *STRANGE)))
        assert job.process.stdout is not None
        lines = []
        for line in job.process.stdout:
            lines.append(line)
            if line.startswith('{"trained"'):
                trained.release()
            elif line.startswith('{"kind"'):
                told = json.loads(line)
                seen.setdefault(told["kind"], {}).update(told)
        assert job.process.wait(60) == 0, "".join(lines)
        server.join(30)
    return seen


@pytest.mark.parametrize("kind", [*KINDS, *STRANGE])
def test_weights_state_and_random_numbers_are_bitwise_those_of_a_run_never_attached(
    outcome: dict[str, dict[str, object]], kind: str
) -> None:
    never, again, watched = outcome[kind]["digests"]
    assert never == again, "the job itself is not deterministic"
    assert watched == never
    assert outcome[kind]["modes"] == 0
    assert outcome[kind]["left"] == []


@pytest.mark.parametrize("kind", [*KINDS, *SENSITIVE])
def test_steps_were_really_traced_meanwhile(outcome: dict[str, dict[str, object]], kind: str) -> None:
    traced = outcome[kind]["traced"]
    assert traced["status"] == "ok", traced["why"]
    assert len(traced["kernel_ns"]) >= 4  # more where steps vary
    assert all(count > 3 for count in traced["operations"])
    assert traced["plain_step_ns"]
    assert sum(1 for step in outcome[kind]["steps"] if step.flags & ring_layout.TRACED) >= 5


def test_skipped_updates_are_steps_of_their_own(outcome: dict[str, dict[str, object]]) -> None:
    steps = outcome["scaler"]["steps"]
    skipped = [step.seq for step in steps if step.flags & ring_layout.SKIPPED]
    assert len(skipped) >= 3
    assert {later - earlier for earlier, later in itertools.pairwise(skipped)} == {7}


def test_a_gan_step_is_one_round_of_all_its_optimizers(outcome: dict[str, dict[str, object]]) -> None:
    sampled = [
        step.sampled
        for step in outcome["gan"]["steps"]
        if step.flags & ring_layout.PHASES and not step.flags & ring_layout.SETTLING
    ]
    assert sampled
    assert {(one["fires"], one["backwards"]) for one in sampled} == {(4, 4)}


def test_a_closure_that_runs_several_times_is_one_step(outcome: dict[str, dict[str, object]]) -> None:
    sampled = [step.sampled for step in outcome["lbfgs"]["steps"] if step.flags & ring_layout.PHASES]
    assert {one["fires"] for one in sampled} == {1}
    assert all(one["backwards"] >= 3 and one["forward_ns"] > 0 and one["optimizer_ns"] > 0 for one in sampled)


def test_a_loop_without_an_optimizer_is_stepped_by_its_backward(
    outcome: dict[str, dict[str, object]],
) -> None:
    sampled = [step.sampled for step in outcome["by_hand"]["steps"] if step.flags & ring_layout.PHASES]
    assert {(one["fires"], one["backwards"]) for one in sampled} == {(0, 1)}


def test_a_step_whose_update_is_fused_into_its_backward_ends_with_that(
    outcome: dict[str, dict[str, object]],
) -> None:
    steps = outcome["optimizer_in_backward"]["steps"]
    sampled = [step.sampled for step in steps if step.flags & ring_layout.PHASES]
    assert {(one["fires"], one["backwards"], one["optimizer_ns"]) for one in sampled} == {(0, 1, 0)}
    assert outcome["optimizer_in_backward"]["traced"]["status"] == "ok"


def test_waiting_for_a_loader_is_seen(outcome: dict[str, dict[str, object]]) -> None:
    sampled = [step.sampled for step in outcome["loader"]["steps"] if step.flags & ring_layout.PHASES]
    assert all(one["data_wait_ns"] > 0 and one["samples"] == 10 for one in sampled)
