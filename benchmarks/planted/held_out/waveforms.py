"""Wide one-dimensional convolutions over waveforms: nearly all of it is multiplication."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from benchmarks.planted.loop import Loop, knobs

KERNEL = 9


def main(argv: Sequence[str] | None = None) -> None:
    args = knobs(argv, channels=128, length=1024, batch=8, layers=3)
    loop = Loop(args)
    channels, length = loop.size(args.channels, 2), loop.size(args.length, KERNEL)
    batch = loop.size(args.batch, 1)
    layers = [nn.Conv1d(channels, channels, KERNEL, padding=KERNEL // 2) for _ in range(args.layers)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    waves = torch.randn(batch, channels, length)
    each = 2 * batch * length * channels * channels * KERNEL
    loop.works(
        flops=3 * args.layers * each - each,
        traffic_bytes=4 * args.layers * (8 * batch * length * channels + 6 * channels * channels * KERNEL),
    )
    for _ in loop:
        optimizer.zero_grad()
        loss = model(waves).square().mean()
        loop.mark("forward")
        loss.backward()
        loop.mark("backward")
        optimizer.step()
        loop.mark("optimizer")


if __name__ == "__main__":
    main()
