"""A differentiable solver: thousands of small linear systems a step, in one operator of torch.linalg."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(systems=3000, side=4)
def main(loop: Loop, args: Knobs) -> None:
    systems, side = loop.size(args.systems, 1), loop.size(args.side, 2)
    stiffness = nn.Parameter(torch.eye(side) * 3)
    optimizer = torch.optim.SGD([stiffness], lr=1e-3)
    springs = 0.1 * torch.randn(systems, side, side)
    forces, goal = torch.randn(2, systems, side, 1)
    # Factor and solve, forward and backward; a dozen passes over the matrices.
    loop.works(flops=4 * systems * side**3, traffic_bytes=4 * 16 * systems * side * side)
    loop.train(optimizer, lambda: (torch.linalg.solve(stiffness + springs, forces) - goal).square().mean())
