"""A dataset that is slow in the main process: input-bound by construction."""

import time

import pace
import torch
from digest import fingerprint
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        deadline = time.perf_counter() + 0.002
        while time.perf_counter() < deadline:
            pass
        return torch.full((32,), float(index % 5)), index % 4


args = pace.parse()
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = iter(DataLoader(Slow(), batch_size=4))
for _ in pace.steps(args):
    inputs, labels = next(batches)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
print("fingerprint", fingerprint(model, optimizer), flush=True)
