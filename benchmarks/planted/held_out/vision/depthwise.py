"""Depthwise convolutions, 7 wide, with pointwise scales between: many channels, each on its own."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

KERNEL = 7


@planted_job(channels=64, side=32, batch=4, layers=3)
def main(loop: Loop, args: Knobs) -> None:
    channels, side, batch = loop.size(args.channels, 1), loop.size(args.side, 2), loop.size(args.batch, 1)
    layers = [
        nn.Conv2d(channels, channels, KERNEL, padding=KERNEL // 2, groups=channels)
        for _ in range(args.layers)
    ]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(batch, channels, side, side)
    loop.works(
        flops=3 * args.layers * 2 * x.numel() * KERNEL * KERNEL, traffic_bytes=4 * args.layers * 7 * x.numel()
    )
    loop.train(optimizer, lambda: model(x).square().mean())
