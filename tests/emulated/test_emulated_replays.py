"""Jobs that capture graphs of their own: a whole step in one, and what waits until a capture has ended."""

from pathlib import Path

import pytest
import torch

from autobrrr.agent.loop.device_stamps import STAMP_EACH
from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.wire.ring_writer import StepRing
from support.agent.agent import AgentJob

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.timeout(120)]

WHOLE = """
import torch
from support.agent import agent_job
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, capturable=True)
data = torch.randn(32, 128, device="cuda")
def step():
    optimizer.zero_grad(set_to_none=False)
    model(data).square().mean().backward()
    optimizer.step()
aside = torch.cuda.Stream()
with torch.cuda.stream(aside):
    for _ in range(3): step()
torch.cuda.synchronize()
whole, metric = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
with torch.cuda.graph(whole): step()
with torch.cuda.graph(metric): data.square()
ended = agent_job.begin()
done = 0
while ended.locked():
    done += 1
    whole.replay()
    metric.replay()
    torch.cuda.synchronize()
agent_job.wait_ended(ended)
assert torch.cuda.CUDAGraph.replay.__qualname__ == "CUDAGraph.replay"
assert not hasattr(torch.cuda.CUDAGraph.replay, "__wrapped__")
print("steps", done)
"""


def test_a_step_that_is_one_graph_ends_with_its_replay_and_is_timed_by_the_device(tmp_path: Path) -> None:
    with AgentJob(WHOLE, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(20)
        while (told := peer.event("anatomy")["anatomy"])["source"] != "replay":  # type: ignore[index]
            pass
        assert told["optimizers"] == []  # type: ignore[index]
        assert peer.ask("stamp", **STAMP_EACH)["ok"]
        seen = peer.steps()[-1].seq
        steps = [each for each in peer.wait_steps(seen + 40) if each.seq > seen + 4]
        stamped = [each for each in steps if each.device_ns > 0]
        assert stamped, {each.device_ns for each in steps}
        last = peer.steps()[-1].seq
        assert peer.ask("detach", keep=False)["left"] == []
        (steps_done,) = [int(line.split()[1]) for line in job.output().splitlines() if "steps" in line]
        assert last < steps_done, "the other graph of a step ends none"


def test_what_is_posted_while_the_job_captures_waits_for_the_step_after() -> None:
    pages = StepRing()
    pages.close_fd()
    loop = TrainLoop(torch, pages, ActiveRemedies({}), lambda event: None)
    weight = torch.nn.Parameter(torch.ones(64, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.0, foreach=False)
    done: list[bool] = []

    def step() -> None:
        weight.grad = torch.zeros_like(weight)
        optimizer.step()

    loop.put_on(lambda: None)
    try:
        for _ in range(8):
            step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loop.post(lambda: done.append(bool(torch.cuda.is_current_stream_capturing())))
            step()
            step()
        assert done == []
        step()
        assert done == [False]
        graph.replay()
        assert loop.broken is None
    finally:
        loop.close_door()
        loop.take_down(keep=False, at_boundary=False)
        pages.release()
