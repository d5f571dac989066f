"""`compile.reduce_overhead` with torch's real compiler: replays, and gradients accumulated over them."""

import pytest
import torch

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import WatchedUndo
from support.agent.remedies import picture, training

pytestmark = [pytest.mark.usefixtures("device", "first_order"), pytest.mark.timeout(300)]


def test_gradients_accumulate_over_replays_and_lie_outside_their_memory() -> None:
    pytest.importorskip("triton")
    loop = training(device="cuda", model="attention")
    before = picture(loop)["modules"]
    undo = REGISTRY["compile.reduce_overhead"].apply(loop.job, {})
    assert isinstance(undo, WatchedUndo)
    places = set()
    for _ in range(12):
        loop.optimizer.zero_grad()
        for _ in range(2):
            loop.model(torch.randn(8, 16, device="cuda")).square().mean().backward()
        places |= {each.grad.data_ptr() for each in loop.model.parameters()}
        loop.optimizer.step()
    assert undo.trouble() is None
    in_graphs = graph_segments()
    assert in_graphs, "nothing was recorded"
    assert not [place for place in places if any(low <= place < high for low, high in in_graphs)]
    undo()
    assert picture(loop)["modules"] == before


def graph_segments() -> list[tuple[int, int]]:
    """Where the private memory of graphs lies."""
    return [
        (segment["address"], segment["address"] + segment["total_size"])
        for segment in torch.cuda.memory_snapshot()
        if tuple(segment["segment_pool_id"]) != (0, 0)
    ]
