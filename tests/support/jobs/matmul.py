"""Large matrix products and nothing else worth mentioning: compute-bound by construction."""

import pace
import torch
from digest import fingerprint
from torch import nn

args = pace.parse()
model = nn.Sequential(nn.Linear(768, 1024), nn.ReLU(), nn.Linear(1024, 768))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = torch.randn(2, 512, 768)
for step in pace.steps(args):
    optimizer.zero_grad()
    model(data[step % 2]).square().mean().backward()
    optimizer.step()
print("fingerprint", fingerprint(model, optimizer), flush=True)
