"""On every kind of loop: attach, detach and any undo keep the bits, and the job's errors stay its own."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import pytest

from support.injected.agent import AgentJob

pytestmark = pytest.mark.integration

SCRIPT = """
import json, random, sys, time, torch
from support.injected import agent_job, agent_kinds
torch.set_num_threads(1)

class Own(Exception):
    pass

def raises(*_):
    raise Own("of the job")

def where(things):  # places in which a step of the job may fail
    model, *others = things
    first = next(iter(model.parameters()))
    yield model.register_forward_pre_hook(raises) if not isinstance(model, torch.nn.ModuleList) else None
    yield first.register_hook(raises)
    yield others[-1].register_step_pre_hook(raises) if others else None

def train(kind, watched):
    torch.manual_seed(0); random.seed(0)
    step, things = agent_kinds.KINDS[kind]()
    for _ in range(10): step()
    ended, raised = agent_job.begin() if watched else None, []
    for turn, hook in enumerate(where(things)):
        try:
            step()
        except Exception as error:
            raised.append([type(error) is Own, error.args, repr(error.__cause__), repr(error.__context__)])
        hook and hook.remove()
        for _ in range(50):
            step()
            if watched: time.sleep(0.002)
    digest = agent_job.fingerprint(torch, *things)
    if watched:
        print(json.dumps(dict(trained=kind)), flush=True)
        while ended.locked(): step()
    return [digest, raised]

for kind in agent_kinds.KINDS:
    print(json.dumps(dict(kind=kind, runs=[train(kind, False), train(kind, True)])), flush=True)
"""
KINDS = (
    *("dropout", "convolution", "lbfgs", "checkpoint_reentrant", "checkpoint_not_reentrant", "amp"),
    *("scaler", "gan", "lstm", "sparse", "by_hand", "loader"),
)
BITWISE = ("optimizer.foreach", "gc.freeze", "host.affinity")


def serve(job: AgentJob, seen: dict[str, list[str]], trained: threading.Semaphore) -> None:
    """For each kind: on and off again, at boundaries that are drawn, until it has trained."""
    for number, kind in enumerate(KINDS):
        draw, peer, switched = random.Random(number), job.peer(), []
        while not trained.acquire(blocking=False):
            name = draw.choice(BITWISE)
            on = peer.ask("apply", remedy=name)
            if on["ok"]:
                switched.append(str(on["class"]))
                peer.wait_steps(int(str(on["seq"])) + draw.randrange(6))
                assert peer.ask("undo", token=on["token"])["ok"]
            peer.wait_steps(len(peer.steps()) + draw.randrange(4))
        assert peer.ask("detach", keep=False)["left"] == []
        seen[kind] = switched
        peer.close()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[object], list[str]]]:
    """By kind: its two runs, and the classes of what was switched in the second."""
    folder: Path = tmp_path_factory.mktemp("promises")
    switched: dict[str, list[str]] = {}
    runs: dict[str, list[object]] = {}
    trained = threading.Semaphore(0)
    with AgentJob(SCRIPT, folder) as job:
        server = threading.Thread(target=serve, args=(job, switched, trained), daemon=True)
        server.start()
        assert job.process.stdout is not None
        lines = []
        for line in job.process.stdout:
            lines.append(line)
            if line.startswith('{"trained"'):
                trained.release()
            elif line.startswith('{"kind"'):
                told = json.loads(line)
                runs[told["kind"]] = told["runs"]
        assert job.process.wait(60) == 0, "".join(lines)
        server.join(30)
    return {kind: (runs[kind], switched[kind]) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_attached_switched_and_left_at_any_boundary_a_job_has_the_bits_it_would_have_had(
    outcome: dict[str, tuple[list[object], list[str]]], kind: str
) -> None:
    (untouched, watched), switched = outcome[kind]
    assert len(switched) >= 3
    assert set(switched) == {"bitwise"}
    assert watched[0] == untouched[0]  # type: ignore[index]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_job_raises_in_a_step_is_its_own(
    outcome: dict[str, tuple[list[object], list[str]]], kind: str
) -> None:
    (untouched, watched), _ = outcome[kind]
    assert watched[1] == untouched[1]  # type: ignore[index]
    assert all(own for own, *_ in watched[1])  # type: ignore[index]
    assert len(watched[1]) >= 1  # type: ignore[index,arg-type]
