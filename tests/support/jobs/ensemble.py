"""Five small networks of one shape, trained one by one."""

import pace
import torch
from digest import fingerprint
from torch import nn

args = pace.parse()
members = [nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4)) for _ in range(5)]
optimizer = torch.optim.Adam([each for one in members for each in one.parameters()])
for _ in pace.steps(args):
    x = torch.randn(64, 32)
    optimizer.zero_grad()
    for one in members:
        one(x).square().mean().backward()
    optimizer.step()
print("fingerprint", fingerprint(*members, optimizer), flush=True)
