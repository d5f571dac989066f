"""A moving average of all weights, tensor by tensor over the state dict, as many training scripts keep it."""

import copy

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


def block(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())


@planted_job(blocks=10, channels=4, side=4, batch=2)
def main(loop: Loop, args: Knobs) -> None:
    channels, side, batch = loop.size(args.channels, 2), loop.size(args.side, 2), loop.size(args.batch, 1)
    model = nn.Sequential(*(block(channels) for _ in range(args.blocks)))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(batch, channels, side, side)
    for _ in loop:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loop.learn(loss, optimizer)
        with torch.no_grad():
            now = model.state_dict()
            for name, kept in average.state_dict().items():
                if kept.dtype.is_floating_point:
                    kept.mul_(0.999).add_(now[name], alpha=0.001)
                else:
                    kept.copy_(now[name])
        loop.mark("optimizer")
