"""Short epochs over a DataLoader; says at the end how it loaded."""

import pace
import psutil
import torch
from digest import fingerprint
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Data(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((32,), index / 48), index % 4


args = pace.parse()
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(Data(), batch_size=4, shuffle=True)
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
