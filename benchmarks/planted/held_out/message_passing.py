"""Graph layers: gather along edges, weigh, add up at the nodes."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class Layer(nn.Module):
    """h + sum over incoming edges of gain * h[source]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, h: Tensor, edges: Tensor) -> Tensor:
        messages = h[edges[0]] * self.gain
        return h + torch.zeros_like(h).index_add(0, edges[1], messages) * 0.1


@planted_job(nodes=20_000, edges=60_000, width=32, layers=2)
def main(loop: Loop, args: Knobs) -> None:
    nodes, edges, width = loop.size(args.nodes, 2), loop.size(args.edges, 2), loop.size(args.width, 2)
    layers = nn.ModuleList([Layer(width) for _ in range(args.layers)])
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    h = torch.randn(nodes, width)
    ends = torch.randint(0, nodes, (2, edges))
    # A layer: gather 2, weigh 2, scatter 3; backward: gather 2, weigh 2 + 3, scatter 3; nodes: 10.
    loop.works(traffic_bytes=4 * width * args.layers * (17 * edges + 10 * nodes))
    for _ in loop:
        optimizer.zero_grad()
        state = h
        for layer in layers:
            state = layer(state, ends)
        loss = state.square().mean()
        loop.learn(loss, optimizer)
