"""Flow on a mesh: single numbers are gathered along edges and scattered back to the nodes, layer by layer."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(nodes=20_000, edges=200_000, layers=2)
def main(loop: Loop, args: Knobs) -> None:
    nodes, edges = loop.size(args.nodes, 2), loop.size(args.edges, 2)
    gains = nn.Parameter(torch.full((args.layers, edges), 0.1))
    optimizer = torch.optim.SGD([gains], lr=1e-3)
    start = torch.randn(nodes)
    source, target = torch.randint(0, nodes, (2, edges))
    # A layer: gather 4 words (an index has two), product 3, scatter 5; backward as many and a product more.
    loop.works(traffic_bytes=4 * args.layers * 30 * edges)
    for _ in loop:
        optimizer.zero_grad()
        level = start
        for gain in gains:
            level = level + torch.zeros_like(level).index_add(0, target, gain * level[source])
        loss = level.square().mean()
        loop.learn(loss, optimizer)
