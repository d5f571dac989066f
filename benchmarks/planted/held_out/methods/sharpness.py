"""Sharpness-aware minimisation: a gradient, a climb along it, a second gradient there, then the step.

Also with `--accumulate N`: N batches a step in place of the climb.
"""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(width=512, batch=512, layers=3, climb=1, accumulate=1)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    layers = [layer for _ in range(args.layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers)
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=1e-3, momentum=0.9)
    batches = torch.randn(args.accumulate, batch, width)
    # Three matmuls a layer, less the gradient of the data, for each backward pass.
    passes = args.accumulate + args.climb
    loop.works(flops=passes * (3 * args.layers - 1) * 2 * batch * width * width)
    for _ in loop:
        optimizer.zero_grad()
        for x in batches:
            (model(x).square().mean() / args.accumulate).backward()
        if args.climb:
            with torch.no_grad():
                norm = torch.stack([w.grad.norm() for w in weights if w.grad is not None]).norm()
                climbs = [w.grad * (0.05 / (norm + 1e-12)) for w in weights if w.grad is not None]
                for weight, up in zip(weights, climbs, strict=True):
                    weight.add_(up)
            optimizer.zero_grad()
            model(batches[0]).square().mean().backward()
            with torch.no_grad():
                for weight, up in zip(weights, climbs, strict=True):
                    weight.sub_(up)
        optimizer.step()
        loop.mark("model")
