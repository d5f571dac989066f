"""Gradient accumulation: four backward calls for one optimizer step."""

import pace
import torch
from digest import fingerprint
from torch import nn

args = pace.parse()
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(32, 8, 32)
labels = torch.randint(0, 4, (32, 8))
for step in pace.steps(args):
    optimizer.zero_grad()
    for micro in range(4):
        index = (4 * step + micro) % 32
        (nn.functional.cross_entropy(model(data[index]), labels[index]) / 4).backward()
    optimizer.step()
print("fingerprint", fingerprint(model, optimizer), flush=True)
