"""A plain loop over tiny layers with dropout: overhead-bound by construction."""

import pace
import torch
from digest import fingerprint
from torch import nn

args = pace.parse()
layers = [layer for _ in range(10) for layer in (nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.1))]
model = nn.Sequential(*layers, nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(32, 16, 32)
labels = torch.randint(0, 4, (32, 16))
for step in pace.steps(args, lambda: fingerprint(model, optimizer), rest_s=0.002):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(data[step % 32]), labels[step % 32])
    loss.backward()
    optimizer.step()
print("fingerprint", fingerprint(model, optimizer), flush=True)
