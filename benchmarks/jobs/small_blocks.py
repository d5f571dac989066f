"""Twelve blocks of width 64, batch 32, plain AdamW: the step is Python and dispatch."""

import pace
import torch
from torch import nn

torch.manual_seed(0)
layers = [each for _ in range(12) for each in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
model = nn.Sequential(*layers, nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data, labels = torch.randn(64, 32, 64), torch.randint(0, 8, (64, 32))
for step in pace.steps(pace.arguments()):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(data[step % 64]), labels[step % 64]).backward()
    optimizer.step()
