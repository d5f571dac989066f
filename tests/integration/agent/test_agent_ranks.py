"""The agent in one of two real ranks: it times what the other makes it wait, keeps bits, puts all back."""

from pathlib import Path
from statistics import median

import pytest

from support.agent.agent import AgentJob, Peer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LATE_S, STEPS = 0.01, 300
JOB = """
import datetime, os, random, time, torch
from support.agent import agent_job
torch.set_num_threads(1); torch.manual_seed(0); random.seed(0)
from torch import nn
import torch.distributed as dist
from torch.distributed import all_reduce  # bound before anything is attached
from torch._C._distributed_c10d import ProcessGroup, Work

class Mine(Work):
    "An override that calls back into the bindings."

rates = []
Parallel = nn.parallel.DistributedDataParallel
set_rate = Parallel._set_ddp_runtime_logging_sample_rate

def spy(self, rate):
    rates.append(rate)
    set_rate(self, rate)

Parallel._set_ddp_runtime_logging_sample_rate = spy
child = os.fork()
rank = 0 if child else 1
dist.init_process_group("gloo", init_method="file://" + STORE, rank=rank, world_size=2)
model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.2), nn.Linear(64, 64))
if HOW == "wrapped":
    model = Parallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(rank)
classes = [dict(vars(cls)) for cls in (ProcessGroup, Work)]

def step():
    optimizer.zero_grad()
    if rank == 1 or HOW == "none":
        time.sleep(LATE_S)
    model(torch.randn(16, 64)).square().mean().backward()
    gradients = [p.grad for p in model.parameters()]
    if HOW == "wrapped":
        all_reduce(torch.zeros(1))
    elif HOW == "async":
        for work in [dist.all_reduce(each, async_op=True) for each in gradients]: work.wait()
    elif HOW == "mixed":
        dist.barrier()
        for each in gradients[1:]:
            parts = [torch.zeros_like(each) for _ in range(2)]
            dist.all_gather(parts, each)
            each.copy_(parts[0] + parts[1])
        all_reduce(gradients[0])
        dist.broadcast(gradients[0], 0)
        try:
            Mine().wait(datetime.timedelta(milliseconds=1))
        except RuntimeError:
            pass
    optimizer.step()

for _ in range(20): step()
ended = agent_job.begin() if rank == 0 and ATTACHED else None
for _ in range(20, STEPS): step()
if ended is not None:
    agent_job.wait_ended(ended)
assert classes == [dict(vars(cls)) for cls in (ProcessGroup, Work)]
if rank == 1:
    os._exit(0)
os.waitpid(child, 0)
if ended is not None:
    assert rates == ([1, 100, 1, 100] if HOW == "wrapped" else []), rates
print("fingerprint", agent_job.fingerprint(torch, model, optimizer), flush=True)
"""


def job(folder: Path, how: str, *, attached: bool = True) -> AgentJob:
    given = {
        "HOW": how,
        "ATTACHED": attached,
        "STEPS": STEPS,
        "LATE_S": LATE_S,
        "STORE": str(folder / "store"),
    }
    return AgentJob("".join(f"{name} = {value!r}\n" for name, value in given.items()) + JOB, folder)


def traced(peer: Peer) -> None:
    """Steps of one rank of two are traced; their phases hold what they do."""
    known = peer.ask("facts")
    assert (known["facts"]["rank"], known["facts"]["world_size"]) == (0, 2)
    assert known["anatomy"]["roots"] == ["DistributedDataParallel"]
    assert peer.ask("trace", steps=4)["ok"]
    found = peer.event("traced")["traced"]
    assert found["status"] == "ok", found["why"]
    assert all(found["kernel_by_phase_ns"][phase] > 0 for phase in ("forward", "backward", "optimizer"))
    assert peer.event("recorded")["recorded"] == {"status": "ok"}


def timed(peer: Peer) -> dict[str, object]:
    """What some steps waited."""
    peer.wait_steps(10)
    assert peer.ask("collectives", steps=8)["ok"]
    waits = peer.event("collectives")["collectives"]
    assert isinstance(waits, dict)
    return waits


def leave(peer: Peer) -> None:
    """In the middle of timing more."""
    assert peer.ask("collectives", steps=500)["ok"]
    peer.wait_steps(peer.steps()[-1].seq + 4)
    assert peer.ask("detach", keep=False)["left"] == []


@pytest.mark.parametrize(("how", "calls"), [("wrapped", 1), ("async", 4), ("mixed", 6)])
def test_the_wait_for_a_slow_rank_is_timed_and_bits_are_kept(how: str, calls: int, tmp_path: Path) -> None:
    prints = []
    for attached in (True, False):
        folder = tmp_path / str(attached)
        folder.mkdir()
        with job(folder, how, attached=attached) as running:
            if attached:
                waits = timed(peer := running.peer())
                if how == "wrapped":
                    traced(peer)
                leave(peer)
            prints.append(running.output())
    assert prints[0] == prints[1]
    assert (waits["status"], waits["calls"]) == ("ok", calls), waits
    steps, exposed, blocked, called = (
        waits[f"{name}_ns"] for name in ("step", "exposed", "blocked", "called")
    )
    assert len(steps) == len(exposed) == len(blocked) >= 8
    # The other rank sleeps 10 ms before its backward; whatever else happens, this one waits.
    assert median(exposed) > 5_000_000
    assert median(blocked) > 5_000_000
    assert all(0 <= one <= step for one, step in zip(exposed, steps, strict=True))
    own = waits["own_by_phase_ns"]
    assert {"forward", "backward", "optimizer", "other"} <= set(own)
    assert {len(column) for column in (*own.values(), waits["end_ns"], waits["delay_ns"])} == {len(steps)}
    assert all(sum(each) <= step for each, step in zip(zip(*own.values(), strict=True), steps, strict=True))
    if how == "wrapped":
        assert median(called) < median(exposed)  # the loop's own call, beside the gradients
        assert set(waits["reduced"]) == {1}  # the backward of each step
        assert median(own["backward"]) < median(exposed)  # what it waits for is no work of its own
    else:
        assert called == exposed
        assert max(waits["called_by_phase_ns"], key=waits["called_by_phase_ns"].get) == "other"


def test_a_loop_that_calls_no_collective_is_told_so(tmp_path: Path) -> None:
    with job(tmp_path, "none") as running:
        waits = timed(peer := running.peer())
        leave(peer)
        assert waits["status"] == "abstained"
        assert "called no collective" in str(waits["why"])
        running.output()
