"""Watched, traced, sampled and switched, a run keeps its bits, and the errors of the job stay its own."""

import json
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from autobrrr.agent.measure.traced_steps import LEAST_STEPS
from autobrrr.agent.wire import ring_layout
from support.agent.agent import AgentJob, Peer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SCRIPT = """
import json, random, sys, time, torch
from support.agent import agent_job, agent_kinds
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

def train(kind, steps=None, fails=()):  # watched until it is left, or so many steps without us
    torch.manual_seed(0); random.seed(0)
    step, things = {**agent_kinds.KINDS, **agent_kinds.STRANGE}[kind]()
    for _ in range(10): step()
    ended, raised, count, hooks = agent_job.begin() if steps is None else None, [], 0, where(things)
    while count < steps if ended is None else ended.locked() or not fails or count <= fails[-1]:
        if ended and not fails and agent_job.told():  # it is traced by now
            fails = [count + 5, count + 20, count + 35]
        hook = next(hooks) if count in fails and kind in agent_kinds.KINDS else None
        try:
            step()
        except Exception as error:
            raised.append([type(error) is Own, error.args, repr(error.__cause__), repr(error.__context__)])
        hook and hook.remove()
        count += 1
        if ended: time.sleep(0.002)
    return [agent_job.fingerprint(torch, *things), raised], count, fails

for kind in sys.stdin.readline().split():
    watched, *rest = train(kind)
    alone, *_ = train(kind, *rest)
    again = alone if watched == alone else train(kind, *rest)[0]  # whose fault is it?
    modes = torch._C._len_torch_dispatch_stack()
    print(json.dumps(dict(kind=kind, watched=watched, alone=alone, again=again, modes=modes)), flush=True)
"""

KINDS = (
    *("dropout", "convolution", "lbfgs", "checkpoint_reentrant", "checkpoint_not_reentrant", "amp"),
    *("scaler", "gan", "lstm", "sparse", "by_hand", "loader"),
)
# Traced or not: their bits stay what they were.
STRANGE = ("gradient_penalty", "functional_gradients", "optimizer_in_backward", "scripted")
BITWISE = ("optimizer.foreach", "gc.freeze", "gc.threshold")
Seen = dict[str, dict[str, object]]


def switched(peer: Peer, draw: random.Random) -> list[str]:
    """The classes of some remedies that went on and off again, at boundaries that are drawn."""
    classes = []
    for name in draw.sample(BITWISE * 2, 5):
        on = peer.ask("apply", remedy=name)
        if on["ok"]:
            classes.append(str(on["class"]))
            peer.wait_steps(int(str(on["seq"])) + draw.randrange(6))
            assert peer.ask("undo", token=on["token"])["ok"]
    return classes


def serve(job: AgentJob, seen: Seen) -> None:
    for number, kind in enumerate((*KINDS, *STRANGE)):
        peer = job.peer()
        peer.wait_steps(8)
        assert peer.ask("trace", steps=4)["ok"]
        traced = peer.event("traced")["traced"]
        assert peer.ask("frames", for_ms=60)["ok"]
        job.tell()
        classes = switched(peer, random.Random(number))
        steps = peer.steps()
        left = peer.ask("detach", keep=False)["left"]
        seen[kind] = {"traced": traced, "left": left, "steps": steps, "classes": classes}
        peer.close()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """By kind: what was seen from outside, and what came out of runs that were watched and alone."""
    folder: Path = tmp_path_factory.mktemp("bitwise")
    seen: Seen = {}
    with AgentJob(SCRIPT, folder) as job:
        server = threading.Thread(target=serve, args=(job, seen), daemon=True)
        server.start()
        job.tell(" ".join((*KINDS, *STRANGE)))
        assert job.process.stdout is not None
        lines = list(job.process.stdout)
        assert job.process.wait(60) == 0, "".join(lines)
        server.join(30)
    for line in lines:
        if line.startswith('{"kind"'):
            told = json.loads(line)
            seen[told["kind"]].update(told)
    return seen


@pytest.mark.parametrize("kind", [*KINDS, *STRANGE])
def test_weights_state_and_random_numbers_are_bitwise_those_of_a_run_never_attached(
    outcome: Seen, kind: str
) -> None:
    found = outcome[kind]
    assert found["alone"] == found["again"], "the job itself is not deterministic"
    assert found["watched"][0] == found["alone"][0]  # type: ignore[index]
    assert (found["modes"], found["left"]) == (0, [])
    assert set(found["classes"]) == {"bitwise"}  # type: ignore[call-overload]
    assert len(found["classes"]) >= 2  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_job_raises_in_a_step_is_its_own(outcome: Seen, kind: str) -> None:
    raised = outcome[kind]["watched"][1]  # type: ignore[index]
    assert raised == outcome[kind]["alone"][1]  # type: ignore[index]
    assert raised
    assert all(own for own, *_ in raised)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_were_really_traced_meanwhile(outcome: Seen, kind: str) -> None:
    traced = outcome[kind]["traced"]
    assert traced["status"] == "ok", traced["why"]
    assert len(traced["kernel_ns"]) >= LEAST_STEPS  # more where steps vary, or cost little
    assert all(count > 3 for count in traced["operations"])
    assert traced["plain_step_ns"]
    assert sum(1 for step in outcome[kind]["steps"] if step.flags & ring_layout.TRACED) >= 5


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("gan", (4, 4)),  # a step is one round of all its optimizers
        ("by_hand", (0, 1)),  # without an optimizer, a backward ends it
        ("optimizer_in_backward", (0, 1)),
    ],
)
def test_a_step_is_what_the_job_does_once_a_round(outcome: Seen, kind: str, shape: tuple[int, int]) -> None:
    no_step = ring_layout.SETTLING | ring_layout.TRACED
    steps = [step for step in outcome[kind]["steps"] if not step.flags & no_step]
    sampled = [step.sampled for step in steps if step.flags & ring_layout.PHASES]
    found = Counter((one["fires"], one["backwards"]) for one in sampled)
    assert found.most_common(1)[0][0] == shape  # a step that raised leaves what it did to the next
