"""Two towers and the similarities of all pairs of a batch: matrix products, in the loss too."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(batch=1024, width=512)
def main(loop: Loop, args: Knobs) -> None:
    batch, width = loop.size(args.batch, 1), loop.size(args.width, 2)
    towers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
    optimizer = torch.optim.SGD(towers.parameters(), lr=1e-3)
    images, texts = torch.randn(2, batch, width)
    labels = torch.arange(batch)
    loop.works(flops=2 * 4 * batch * width * width + 6 * batch * batch * width)
    for _ in loop:
        optimizer.zero_grad()
        scores = towers[0](images) @ towers[1](texts).T / width
        loss = nn.functional.cross_entropy(scores, labels)
        loop.learn(loss, optimizer)
