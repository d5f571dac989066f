"""A diffusion model of almost no size on large fields: noise mixed in, channels scaled and shifted."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

FLOAT = 4


@planted_job(batch=8, channels=8, side=256)
def main(loop: Loop, args: Knobs) -> None:
    batch, channels, side = loop.size(args.batch, 1), args.channels, loop.size(args.side, 1)
    gain = nn.Parameter(torch.ones(channels, 1, 1))
    shift = nn.Parameter(torch.zeros(channels, 1, 1))
    optimizer = torch.optim.Adam([gain, shift], lr=1e-3)
    fields = torch.randn(batch, channels, side, side)
    noise = torch.randn(2, batch, channels, side, side)
    signal = torch.linspace(1, 0.01, 100)
    # Mixing 7 passes, scale and shift 4, residual 3, error 3, square 2, mean 1; backward: fill 1,
    # square 5, the sums for shift and gain 1 + 4.
    loop.works(traffic_bytes=FLOAT * fields.numel() * 31)
    for step in loop:
        at = signal[torch.randint(0, 100, (batch,))][:, None, None, None]
        eps = noise[step % 2]
        optimizer.zero_grad()
        mixed = at.sqrt() * fields + (1 - at).sqrt() * eps
        said = mixed + (mixed * gain + shift)
        loss = (said - eps).square().mean()
        loop.learn(loss, optimizer)
