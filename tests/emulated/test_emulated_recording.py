"""Copied gradients on the device: what the replay of a graph may write to."""

import pytest
import torch
from torch import nn

from autobrrr.agent.remedies.model_calls.call_layers import hold_gradients

pytestmark = [pytest.mark.usefixtures("device", "first_order"), pytest.mark.timeout(300)]


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
            assert (parameter.grad.data_ptr() == gradient.data_ptr()) == (not copied)
        undo()
        assert all(parameter._backward_hooks is None for parameter in module.parameters())
