"""Short epochs over a DataLoader; says at the end how it loaded. `--random`: the dataset draws numbers."""

import sys

import pace
import psutil
import torch
from digest import fingerprint
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Data(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, random: bool) -> None:
        self.random = random

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = torch.rand(32) if self.random else torch.zeros(32)
        return torch.full((32,), index / 48) + noise, index % 4


random = "--random" in sys.argv
sys.argv = [word for word in sys.argv if word != "--random"]
args = pace.parse()
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(Data(random), batch_size=4, shuffle=True)
batches = iter(loader)
for _ in pace.steps(args):
    try:
        inputs, labels = next(batches)
    except StopIteration:
        batches = iter(loader)
        inputs, labels = next(batches)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
print(
    "loader", loader.num_workers, loader.prefetch_factor, loader.persistent_workers, len(inputs), flush=True
)
print("processes beside", len(psutil.Process().children()), flush=True)
print("fingerprint", fingerprint(model, optimizer), flush=True)
