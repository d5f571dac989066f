"""A DataLoader with two workers and an easy dataset."""

import pace
import torch
from digest import fingerprint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    args = pace.parse()
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    dataset = TensorDataset(torch.randn(4096, 32), torch.randint(0, 4, (4096,)))
    loader = DataLoader(dataset, batch_size=8, num_workers=2, shuffle=True, persistent_workers=True)
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
    print("fingerprint", fingerprint(model, optimizer), flush=True)
