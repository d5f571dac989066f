"""A physics-informed net: the residual of u'' + u = 0 on a few points, by differentiating twice."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(points=16, width=16, layers=4)
def main(loop: Loop, args: Knobs) -> None:
    points, width = loop.size(args.points, 1), loop.size(args.width, 2)
    layers: list[nn.Module] = [nn.Linear(1, width), nn.Tanh()]
    for _ in range(args.layers):
        layers += [nn.Linear(width, width), nn.Tanh()]
    net = nn.Sequential(*layers, nn.Linear(width, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x = torch.rand(points, 1, requires_grad=True)
    for _ in loop:
        optimizer.zero_grad()
        u = net(x)
        first = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        second = torch.autograd.grad(first.sum(), x, create_graph=True)[0]
        loss = (second + u).square().mean()
        loop.learn(loss, optimizer)
