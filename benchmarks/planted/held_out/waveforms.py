"""Wide one-dimensional convolutions over waveforms: nearly all of it is multiplication."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

KERNEL = 9


@planted_job(channels=128, length=1024, batch=8, layers=3)
def main(loop: Loop, args: Knobs) -> None:
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
    loop.train(optimizer, lambda: model(waves).square().mean())
