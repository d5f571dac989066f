"""`compile.graphed` and copied gradients on the device: what is recorded, what a replay may write to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.model_calls.call_layers import hold_gradients
from autobrrr.injected.remedies.registry import WatchedUndo
from support.injected.remedies import Training, picture, training

pytestmark = [pytest.mark.usefixtures("device", "first_order"), pytest.mark.timeout(300)]
STEPS = 12


def replayed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts replays of graphs."""
    count = [0]
    replay = torch.cuda.CUDAGraph.replay

    def counted(graph: torch.cuda.CUDAGraph) -> None:
        count[0] += 1
        replay(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    return lambda: count[0]


def trained(loop: Training, *, accumulate: int = 1, autocast: bool = False) -> None:
    for _ in range(STEPS):
        loop.optimizer.zero_grad()
        for _ in range(accumulate):
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                out = loop.model(torch.randn(8, 16, device="cuda"))
            out.float().square().mean().backward()
        loop.optimizer.step()


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
def test_a_model_with_dropout_is_recorded_also_under_autocast(autocast: bool, monkeypatch) -> None:
    loop = training(device="cuda", model="plain")
    before, replays = picture(loop)["modules"], replayed(monkeypatch)
    undo = REGISTRY["compile.graphed"].apply(loop.job, {})
    assert isinstance(undo, WatchedUndo)
    trained(loop, accumulate=2, autocast=autocast)
    assert undo.trouble() is None
    assert replays() > STEPS
    undo()
    assert picture(loop)["modules"] == before


def test_a_loader_that_pins_memory_does_not_end_the_capture(monkeypatch) -> None:
    loop = training(device="cuda", model="attention")
    replays = replayed(monkeypatch)
    loader = DataLoader(TensorDataset(torch.randn(4096, 16)), batch_size=8, num_workers=1, pin_memory=True)
    batches = iter(loader)
    loop.job.saw_iterator(batches)
    undo = REGISTRY["compile.graphed"].apply(loop.job, {})
    assert isinstance(undo, WatchedUndo)
    for _ in range(3 * STEPS):
        (batch,) = next(batches)
        loop.optimizer.zero_grad()
        loop.model(batch.cuda(non_blocking=True)).square().mean().backward()
        loop.optimizer.step()
    assert undo.trouble() is None
    assert replays() > STEPS
    undo()


def graph_memory(module: nn.Module) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor]]:
    """A recorded backward, and the gradients it writes in the graph's own memory."""
    given = torch.randn(8, 16, device="cuda")
    parameters = list(module.parameters())
    for _ in range(2):
        torch.autograd.grad(module(given).sum(), parameters)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradients = torch.autograd.grad(module(given).sum(), parameters)
    return graph, list(gradients)


def test_gradients_do_not_stay_in_a_graphs_memory() -> None:
    module = nn.Linear(16, 4).cuda()
    _graph, own = graph_memory(module)
    for copied in (False, True):
        undo = hold_gradients(module) if copied else lambda: None
        for parameter, gradient in zip(module.parameters(), own, strict=True):
            parameter.grad = None

            class Replayed(torch.autograd.Function):
                @staticmethod
                def forward(ctx, weight, gradient=gradient):
                    return weight.sum()

                @staticmethod
                def backward(ctx, _, gradient=gradient):
                    return gradient.detach()

            Replayed.apply(parameter).backward()
            assert parameter.grad is not None
            assert (parameter.grad.data_ptr() == gradient.data_ptr()) == (not copied)
        undo()
        assert all(parameter._backward_hooks is None for parameter in module.parameters())
