"""On every kind of loop: attach, detach and any undo keep the bits, and the job's errors stay its own."""

from __future__ import annotations

import json
import random
import threading

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

def train(kind, steps=None):  # watched until it is left, or so many steps without us
    torch.manual_seed(0); random.seed(0)
    step, things = agent_kinds.KINDS[kind]()
    for _ in range(10): step()
    ended, raised, count, hooks = agent_job.begin() if steps is None else None, [], 0, where(things)
    while count < (steps or 50) or (ended and ended.locked()):
        hook = next(hooks) if count in (15, 30, 45) else None
        try:
            step()
        except Exception as error:
            raised.append([type(error) is Own, error.args, repr(error.__cause__), repr(error.__context__)])
        hook and hook.remove()
        count += 1
        if ended: time.sleep(0.001)
    return agent_job.fingerprint(torch, *things), raised, count

for kind in agent_kinds.KINDS:
    watched = train(kind)
    print(json.dumps(dict(kind=kind, watched=watched[:2], alone=train(kind, watched[2])[:2])), flush=True)
"""
KINDS = (
    *("dropout", "convolution", "lbfgs", "checkpoint_reentrant", "checkpoint_not_reentrant", "amp"),
    *("scaler", "gan", "lstm", "sparse", "by_hand", "loader"),
)
BITWISE = ("optimizer.foreach", "gc.freeze", "host.affinity")


def switch(job: AgentJob, switched: dict[str, list[str]]) -> None:
    """For each kind: some of them on and off again, at boundaries that are drawn."""
    for number, kind in enumerate(KINDS):
        draw, peer = random.Random(number), job.peer()
        for name in draw.sample(BITWISE * 2, 5):
            on = peer.ask("apply", remedy=name)
            if on["ok"]:
                switched.setdefault(kind, []).append(str(on["class"]))
                peer.wait_steps(int(str(on["seq"])) + draw.randrange(6))
                assert peer.ask("undo", token=on["token"])["ok"]
        assert peer.ask("detach", keep=False)["left"] == []
        peer.close()


Outcome = dict[str, dict[str, list[object]]]


@pytest.fixture(scope="module")
def switched() -> dict[str, list[str]]:
    """By kind: the classes of what was switched."""
    return {}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, switched: dict[str, list[str]]) -> Outcome:
    """By kind: digest and errors of a run that was watched, and of one alone."""
    with AgentJob(SCRIPT, tmp_path_factory.mktemp("promises")) as job:
        server = threading.Thread(target=switch, args=(job, switched), daemon=True)
        server.start()
        said = job.output(600)
        server.join(30)
    found = [json.loads(line) for line in said.splitlines() if line.startswith('{"kind"')]
    return {each["kind"]: each for each in found}


@pytest.mark.parametrize("kind", KINDS)
def test_attached_switched_and_left_at_any_boundary_a_job_has_the_bits_it_would_have_had(
    outcome: Outcome, switched: dict[str, list[str]], kind: str
) -> None:
    assert len(switched[kind]) >= 2
    assert set(switched[kind]) == {"bitwise"}
    assert outcome[kind]["watched"][0] == outcome[kind]["alone"][0]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_job_raises_in_a_step_is_its_own(outcome: Outcome, kind: str) -> None:
    raised = outcome[kind]["watched"][1]
    assert raised == outcome[kind]["alone"][1]
    assert raised
    assert all(own for own, *_ in raised)  # type: ignore[attr-defined]
