"""One large weight, one sample, and a moving average of the weight that the loop itself keeps."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

FLOAT = 4


@planted_job(width=3072)
def main(loop: Loop, args: Knobs) -> None:
    width = loop.size(args.width, 2)
    model = nn.Linear(width, width, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, foreach=False)
    average = model.weight.detach().clone()
    x = torch.randn(1, width)
    # Forward reads the weight, backward writes its gradient; momentum 3 + 3 passes, the average 3.
    loop.works(flops=4 * width * width, traffic_bytes=FLOAT * width * width * 11)
    for _ in loop:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loop.learn(loss, optimizer)
        with torch.no_grad():
            average.lerp_(model.weight, 0.01)
        loop.mark("optimizer")
