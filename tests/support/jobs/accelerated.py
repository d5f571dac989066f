"""A loop of Hugging Face Accelerate, as `accelerate launch` starts it."""

import sys
from pathlib import Path

import pace
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(Path(__file__).resolve().parents[2]))
from support.updates import Seen

args = pace.parse()
seen = Seen(torch.optim.AdamW)
accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
dataset = TensorDataset(torch.randn(64, 32), torch.randint(0, 4, (64,)))
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.AdamW(model.parameters()), DataLoader(dataset, batch_size=8)
)
batches = iter(loader)
for _ in pace.steps(args):
    found = next(batches, None)
    if found is None:
        batches = iter(loader)
        found = next(batches)
    optimizer.zero_grad()
    accelerator.backward(nn.functional.cross_entropy(model(found[0]), found[1]))
    optimizer.step()
print("updates", seen.last, optimizer.optimizer.param_groups[0]["foreach"], flush=True)
