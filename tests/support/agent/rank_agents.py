"""Two real ranks on gloo, each with an agent; the test is both sidecars.

Every rank writes down, step by step, whether its update is fused, and at the end its weights.
"""

from __future__ import annotations

import json
import select
import socket
from pathlib import Path

from support.agent.agent import AgentJob, Peer

START_S = 240

JOB = """
import hashlib, json, time, torch
from support.agent import agent_job
torch.set_num_threads(1); torch.manual_seed(0)
from torch import nn
import torch.distributed as dist

dist.init_process_group("gloo", init_method=WHERE, rank=RANK, world_size=2)
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
over = torch.zeros(1)
modes = []
first = next(model.parameters())
fused = torch._fused_adamw_

def spy(parameters, *args, **kwargs):
    if any(each is first for each in parameters):  # no rehearsal on scratch tensors
        modes[-1] = 1
    return fused(parameters, *args, **kwargs)

torch._fused_adamw_ = spy
torch.manual_seed(RANK)

def step():
    optimizer.zero_grad()
    modes.append(0)
    model(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()
    if len(modes) % 7 == 0:
        dist.all_reduce(torch.zeros(1))  # not every step has as many collectives
    over.fill_(float(RANK == 0 and agent_job.told()))
    dist.all_reduce(over)
    return float(over) == 0

ended = None
for number in range(20 + 5 * RANK): step() if number < 20 else None
if AGENT:
    ended = agent_job.begin()
between = compile(BETWEEN, "between", "exec")
while step(): exec(between); time.sleep(0.002)
step(); step()  # with what was switched last
print("modes", json.dumps(modes), flush=True)
bits = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
print("weights", hashlib.md5(bits).hexdigest(), flush=True)
if ended is not None:
    agent_job.wait_ended(ended)
dist.destroy_process_group()
"""


class RankJobs:
    """The ranks; leave with `modes` and `weights` once all have ended.

    Args:
        between: What a rank does after each step, as source.
    """

    def __init__(
        self, folder: Path, *, by_file: bool = False, agents: int = 2, between: str = "", script: str = JOB
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        where = f"file://{folder / 'store'}" if by_file else f"tcp://127.0.0.1:{port}"
        self.jobs: list[AgentJob] = []
        for rank in range(2):
            own = folder / str(rank)
            own.mkdir()
            head = f"WHERE, RANK, AGENT = {where!r}, {rank}, {rank < agents}\n"
            self.jobs.append(AgentJob(f"{head}BETWEEN = {between!r}\n{script}", own))
        self.agents = agents

    def peers(self) -> list[Peer]:
        """The links, once every rank trains."""
        jobs = self.jobs[: self.agents]
        for job in jobs:  # where others use the machine, torch alone takes half a minute to come up
            select.select([job.server], [], [], START_S)
        found = [job.peer() for job in jobs]
        for peer in found:
            peer.wait_steps(20)
        return found

    def end(self) -> tuple[list[list[int]], list[str]]:
        """Let the ranks end; what each noted by step, and its weights."""
        self.jobs[0].tell()
        said = [
            dict(line.split(" ", 1) for line in job.output().splitlines() if " " in line) for job in self.jobs
        ]
        return [json.loads(one["modes"]) for one in said], [one["weights"] for one in said]

    def end_alike(self) -> list[int]:
        """Let the ranks end, which have the same weights; what all of them noted by step."""
        modes, weights = self.end()
        assert all(each == modes[0] for each in modes)
        assert len(set(weights)) == 1
        return modes[0]

    def __enter__(self) -> RankJobs:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.jobs:
            job.__exit__()


def meet(peers: list[Peer]) -> list[Peer]:
    """Let all ranks switch together from now on."""
    log = ""
    for peer in peers:
        found = peer.ask("together", log=log)
        assert found["ok"], found
        log = str(found["log"])
    return peers
