"""A field of velocities, integrated by Runge-Kutta of fourth order, and the gradient through all of it."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(turns=8, width=16, batch=8)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    field = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
    start, goal = torch.randn(2, batch, 2)

    def advanced(z: Tensor, h: float) -> Tensor:
        k1 = field(z)
        k2 = field(z + h / 2 * k1)
        k3 = field(z + h / 2 * k2)
        k4 = field(z + h * k3)
        return z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    for _ in loop:
        optimizer.zero_grad()
        z = start
        for _ in range(args.turns):
            z = advanced(z, 1 / args.turns)
        loss = (z - goal).square().mean()
        loop.learn(loss, optimizer)
