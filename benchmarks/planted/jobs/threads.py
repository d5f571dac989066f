"""Pointwise operators just large enough to be split over threads, and more threads than they are worth."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(elements=40_000, links=40)
def main(loop: Loop, args: Knobs) -> None:
    elements = loop.size(args.elements, 8)
    gain = nn.Parameter(torch.ones(elements))
    optimizer = torch.optim.SGD([gain], lr=1e-4)
    x = torch.randn(elements)
    loop.works(traffic_bytes=4 * elements * args.links * 8)
    for _ in loop:
        optimizer.zero_grad()
        y = gain * x
        for _ in range(args.links):
            y = torch.relu(y)
        loss = y.mean()
        loop.learn(loss, optimizer)
