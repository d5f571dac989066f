"""Depthwise convolutions, 7 wide, with pointwise scales between: many channels, each on its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from benchmarks.planted.loop import Loop, knobs

KERNEL = 7


def main(argv: Sequence[str] | None = None) -> None:
    args = knobs(argv, channels=64, side=32, batch=4, layers=3)
    loop = Loop(args)
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
    for _ in loop:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loop.mark("forward")
        loss.backward()
        loop.mark("backward")
        optimizer.step()
        loop.mark("optimizer")


if __name__ == "__main__":
    main()
