"""A three-layer network of width 1024, batch 1024, plain AdamW: large operators on a CPU."""

import pace
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(1024, 1024)
for _ in pace.steps(pace.arguments()):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
